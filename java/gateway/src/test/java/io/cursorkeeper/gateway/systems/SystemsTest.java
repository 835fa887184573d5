package io.cursorkeeper.gateway.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.service.GatewaySettings;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Security;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import javax.security.auth.login.Configuration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What a broker.conf and the flags beside it come to, and that what is wrong is named. */
class SystemsTest {
  private static final String SASL =
      "bookkeeperClientAuthenticationPlugin="
          + "org.apache.bookkeeper.sasl.SASLClientProviderFactory\n";

  @TempDir static Path certificates;
  private static Certificates good;
  private static Certificates other;
  private static Certificates expired;
  @TempDir Path folder;
  private Properties before;

  @BeforeAll
  static void make() throws Exception {
    good = Certificates.make(certificates, "good", "-1H");
    other = Certificates.make(certificates, "other", "-1H");
    expired = Certificates.make(certificates, "expired", "-3d");
  }

  @BeforeEach
  void remember() {
    before = new Properties();
    before.putAll(System.getProperties());
  }

  @AfterEach
  void forget() {
    System.setProperties((Properties) before.clone());
    Configuration.setConfiguration(null);
  }

  private Systems of(String conf, String... more) throws Exception {
    Path file = folder.resolve("broker.conf");
    Files.writeString(file, conf);
    List<String> args = new ArrayList<>(List.of("--broker-conf", file.toString()));
    args.addAll(List.of(more));
    return ofFlags(args.toArray(String[]::new));
  }

  private static Systems ofFlags(String... args) {
    List<Flag> known = new ArrayList<>(Systems.FLAGS);
    known.addAll(GatewaySettings.FLAGS);
    known.add(Flags.CONFIG);
    return Systems.of(Flags.parse(known, args));
  }

  private void wrong(String words, String conf, String... more) {
    String said = assertThrows(IllegalArgumentException.class, () -> of(conf, more)).getMessage();
    assertTrue(said.contains(words), said);
  }

  private Path file(String name, String content) throws Exception {
    return Files.writeString(folder.resolve(name), content);
  }

  private static String tls(Path key, Path certificate, Path trust) {
    return "metadataStoreUrl=zk:z:2181\nbookkeeperTLSClientAuthentication=true\n"
        + "bookkeeperTLSKeyFilePath="
        + key
        + "\nbookkeeperTLSCertificateFilePath="
        + certificate
        + "\nbookkeeperTLSTrustCertsFilePath="
        + trust
        + "\n";
  }

  @Test
  void theMetadataAreWhereABrokerHasThem() throws Exception {
    assertEquals("zk+null://z:2181/ledgers", of("metadataStoreUrl=zk:z:2181").metadataServiceUri());
    assertEquals(
        "zk+null://y:1;z:2/p/ledgers", of("metadataStoreUrl = y:1,z:2/p").metadataServiceUri());
    assertEquals("zk+null://zk:1/ledgers", of("zookeeperServers=zk:1").metadataServiceUri());
    assertEquals(
        "zk+hierarchical://z:2/l",
        of("metadataStoreUrl=zk:y:1\nbookkeeperMetadataServiceUri=zk+hierarchical://z:2/l")
            .metadataServiceUri());
    assertEquals(
        "zk+null://z:2/ledgers",
        of("bookkeeperMetadataServiceUri=metadata-store:zk:z:2").metadataServiceUri());
    assertEquals(
        "zk+null://other:1/l",
        of("metadataStoreUrl=zk:y:1", "--metadata-service-uri", "zk+null://other:1/l")
            .metadataServiceUri());
    wrong("ZooKeeper only", "metadataStoreUrl=etcd:http://e:2379");
    wrong("names no metadata store: set metadataStoreUrl", "# nothing");
    assertTrue(
        assertThrows(IllegalArgumentException.class, () -> ofFlags())
            .getMessage()
            .contains("--metadata-service-uri is missing"));
  }

  @Test
  void bookKeepersClientIsToldWhatABrokerTellsIt() throws Exception {
    Systems systems =
        of(
            tls(good.key(), good.certificate(), good.certificate())
                + SASL
                + "bookkeeperClientAuthenticationParametersName=saslJaasClientSectionName\n"
                + "bookkeeperClientAuthenticationParameters=Mine\n"
                + "bookkeeper_tlsEnabledProtocols=TLSv1.3\n"
                + "bookkeeper_throttle=7\n"
                + "bookkeeperTlsCertFilesRefreshDurationSeconds=9\n",
            "--jaas-file",
            file("jaas", "Mine { some.Module required; };").toString());
    ClientConfiguration config = new ClientConfiguration();
    systems.configure(config);
    assertEquals(good.key().toString(), config.getTLSKeyStore());
    assertEquals("PEM", config.getTLSKeyStoreType());
    assertEquals(good.certificate().toString(), config.getTLSCertificatePath());
    assertEquals(good.certificate().toString(), config.getTLSTrustStore());
    assertEquals("PEM", config.getTLSTrustStoreType());
    assertEquals(ClientSettings.TLS_FACTORY, config.getTLSProviderFactoryClass());
    assertTrue(config.getTLSClientAuthentication());
    assertEquals(9, config.getTLSCertFilesRefreshDurationSeconds());
    assertEquals("TLSv1.3", config.getTLSEnabledProtocols());
    assertEquals("Mine", config.getString("saslJaasClientSectionName"));
    assertEquals(7, config.getThrottleValue());
    assertEquals(
        BouncyCastleProvider.class,
        Security.getProvider(BouncyCastleProvider.PROVIDER_NAME).getClass(),
        "BookKeeper's class of TLS asks for it");
  }

  @Test
  void filesOfTlsAreLookedAtAgainWhoeverNamesThem() throws Exception {
    String files =
        "tlsClientAuthentication=true\ntlsProviderFactoryClass="
            + ClientSettings.TLS_FACTORY
            + "\ntlsKeyStoreType=PEM\ntlsKeyStore="
            + good.key()
            + "\ntlsCertificatePath="
            + good.certificate()
            + "\ntlsTrustStoreType=PEM\ntlsTrustStore="
            + good.certificate()
            + "\n";
    String never = "tlsCertFilesRefreshDurationSeconds=0\n";
    String store = "metadataStoreUrl=zk:z:2181\n";
    assertEquals(300, refreshSeconds(store, "--bookkeeper-conf", file("bk", files).toString()));
    assertEquals(
        0, refreshSeconds(store, "--bookkeeper-conf", file("bk", files + never).toString()));
    String brokers = tls(good.key(), good.certificate(), good.certificate());
    assertEquals(300, refreshSeconds(brokers));
    String seconds = "bookkeeperTlsCertFilesRefreshDurationSeconds=";
    assertEquals(300, refreshSeconds(brokers + seconds));
    assertEquals(
        9,
        refreshSeconds(brokers + seconds + "9", "--bookkeeper-conf", file("bk", files).toString()));
    assertEquals(0, refreshSeconds(store), "there is nothing to look at");
  }

  private long refreshSeconds(String conf, String... more) throws Exception {
    ClientConfiguration config = new ClientConfiguration();
    of(conf, more).configure(config);
    return config.getTLSCertFilesRefreshDurationSeconds();
  }

  @Test
  void keyStoresWithPasswordsAreTaken() throws Exception {
    String stores =
        tls(good.store(), Path.of(""), good.store())
            + "bookkeeperTLSKeyFileType=PKCS12\nbookkeeperTLSTrustCertTypes=PKCS12\n";
    Path password = file("password", Certificates.PASSWORD + "\n");
    String passwords =
        "bookkeeperTLSKeyStorePasswordPath="
            + password
            + "\nbookkeeperTLSTrustStorePasswordPath="
            + password;
    of(stores + passwords);
    file("password", "wrong");
    wrong("good.p12", stores + passwords);
    Files.delete(password);
    wrong("there is no such file", stores + passwords);
  }

  @Test
  void withoutItsSwitchTlsIsOff() throws Exception {
    Systems systems =
        of(
            "metadataStoreUrl=zk:z:2181\nbookkeeperTLSKeyFilePath=/nowhere\n"
                + "bookkeeperTLSTrustCertsFilePath=/nowhere\n");
    ClientConfiguration config = new ClientConfiguration();
    systems.configure(config);
    assertFalse(config.getTLSClientAuthentication());
    assertEquals(null, config.getTLSProviderFactoryClass());
  }

  @Test
  void aFileThatCannotBeUsedIsNamed() throws Exception {
    wrong("use true or false", "metadataStoreUrl=z\nbookkeeperTLSClientAuthentication=yes");
    Path nowhere = Path.of("/nowhere.pem");
    wrong(
        "bookkeeperTLSKeyFilePath = /nowhere.pem: there is no such file",
        tls(nowhere, good.certificate(), good.certificate()));
    wrong(
        "bookkeeperTLSTrustCertsFilePath = /nowhere.pem: there is no such file",
        tls(good.key(), good.certificate(), nowhere));
    wrong("is not the key of", tls(good.key(), other.certificate(), good.certificate()));
    wrong(
        "renew it, or set this machine's clock",
        tls(expired.key(), expired.certificate(), good.certificate()));
    wrong("it holds no certificate", tls(good.key(), good.certificate(), good.key()));
    wrong("a key without its certificate", tls(good.key(), Path.of(""), good.certificate()));
    wrong("no file is named", tls(good.key(), good.certificate(), Path.of("")));
    String fine = tls(good.key(), good.certificate(), good.certificate());
    wrong("use PEM, JKS or PKCS12", fine + "bookkeeperTLSKeyFileType=DER");
    wrong(
        "bookkeeperTLSProviderFactoryClass = some.Class: it is not a class",
        fine + "bookkeeperTLSProviderFactoryClass=some.Class");
    assertTrue(
        assertThrows(
                IllegalArgumentException.class, () -> ofFlags("--broker-conf", "/nowhere.conf"))
            .getMessage()
            .contains("--broker-conf /nowhere.conf cannot be read (there is no such file)"));
    Path binary = Files.write(folder.resolve("binary"), new byte[] {(byte) 0xff, 0, 1});
    assertTrue(
        assertThrows(
                IllegalArgumentException.class, () -> ofFlags("--broker-conf", binary.toString()))
            .getMessage()
            .contains("is not UTF-8"));
  }

  @Test
  void aLoginThatCannotBeUsedIsNamed() throws Exception {
    String store = "metadataStoreUrl=zk:z:2181\n";
    wrong(
        "bookkeeperClientAuthenticationPlugin = some.Plugin: it is not a class",
        store + "bookkeeperClientAuthenticationPlugin=some.Plugin");
    wrong("it is not a class", store + "bookkeeperClientAuthenticationPlugin=java.lang.String");
    wrong("there is no JAAS section BookKeeper", store + SASL);
    wrong("--jaas-file /nowhere: it cannot be read", store + SASL, "--jaas-file", "/nowhere");
    wrong(
        "correct it; it is a file of JAAS sections",
        store + SASL,
        "--jaas-file",
        file("jaas", "nonsense").toString());
    forget();
    of(store, "--bookkeeper-auth-file", file("user", "sasl:me:secret\n").toString());
    wrong(
        "write sasl:USER:PASSWORD into it",
        store,
        "--bookkeeper-auth-file",
        file("user", "digest:me:secret").toString());
  }

  @Test
  void aUserThatIsNoneIsNamed() throws Exception {
    String store = "metadataStoreUrl=zk:z:2181\n";
    String remedy = "write digest:USER:PASSWORD or sasl:USER:PASSWORD into it";
    for (String user : List.of("", "me:secret", "digest:me", "digest::secret", "ip:me:secret")) {
      wrong(remedy, store, "--zookeeper-auth-file", file("user", user).toString());
    }
    wrong(
        "the placeholder of our examples",
        store,
        "--zookeeper-auth-file",
        file("user", "digest:me:change-me").toString());
    wrong("there is no such file", store, "--zookeeper-auth-file", "/nowhere");
    wrong("allowed is open or creator", store, "--zookeeper-acl", "closed");
    wrong("the gateway is nobody to ZooKeeper", store, "--zookeeper-acl", "creator");
    of(
        store,
        "--zookeeper-acl",
        "creator",
        "--zookeeper-auth-file",
        file("user", "digest:me:se:cret").toString());
  }

  @Test
  void zooKeepersClientIsToldWhatABrokerTellsIt() throws Exception {
    Path conf =
        file(
            "zookeeper.conf",
            "zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location="
                + good.certificate()
                + "\nother.client=true\n");
    String broker = "metadataStoreUrl=zk:z:2181\nmetadataStoreConfigPath=" + conf;
    of(broker);
    assertEquals(
        good.certificate().toString(), System.getProperty("zookeeper.ssl.trustStore.location"));
    assertEquals(
        "org.apache.zookeeper.ClientCnxnSocketNetty",
        System.getProperty("zookeeper.clientCnxnSocket"));
    assertEquals(null, System.getProperty("other.client"));
    assertEquals(null, System.getProperty("zookeeper.fips-mode"));
    file(
        "zookeeper.conf",
        "zookeeper.client.secure=true\nzookeeper.ssl.keyStore.location=/nowhere.p12");
    wrong("zookeeper.ssl.keyStore.location = /nowhere.p12: there is no such file", broker);
    Files.delete(conf);
    wrong("metadataStoreConfigPath = " + conf + " cannot be read", broker);
  }

  @Test
  void aPasswordIsSaidAlthoughZooKeepersClientWouldRatherNot() throws Exception {
    of(
        "metadataStoreUrl=zk:z:2181",
        "--zookeeper-auth-file",
        file("user", "sasl:me:secret").toString());
    assertEquals("false", System.getProperty("zookeeper.fips-mode"));
    assertEquals(
        "me",
        Configuration.getConfiguration()
            .getAppConfigurationEntry("Client")[0]
            .getOptions()
            .get("username"));
  }
}
