package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.client.LinkTls;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SettingsTest {

  private static Properties of(String... pairs) {
    Properties properties = new Properties();
    properties.setProperty("zookeeperServers", "not ours");
    for (int i = 0; i < pairs.length; i += 2) {
      properties.setProperty(pairs[i], pairs[i + 1]);
    }
    return properties;
  }

  private static void refused(String name, String value) {
    Properties properties = of("cursorKeeperAddress", "a:1");
    properties.setProperty(name, value);
    String said =
        assertThrows(SettingsException.class, () -> Settings.read(properties)).getMessage();
    assertTrue(said.contains(name + "=" + value) && said.contains("What to do: "), said);
  }

  @Test
  void anAddressIsEnough() {
    Settings settings = Settings.read(of("cursorKeeperAddress", " 127.0.0.1:7650 "));
    assertEquals(Settings.Mode.KEEP, settings.mode());
    assertEquals("127.0.0.1:7650", settings.address());
    assertEquals(Settings.Receipts.DURABLE, settings.receipts());
    assertEquals(Duration.ofSeconds(25), settings.openTimeout());
    assertEquals(Settings.OnStale.REFUSE, settings.onStale());
    assertEquals(Settings.OnFailedLoad.FAIL, settings.onFailedLoad());
    assertEquals(50_000, settings.waitingAcksMax());
    assertEquals(200_000, settings.waitingAcksBrokerMax());
    assertEquals(0, settings.cursorMetricsMax());
    assertEquals(Duration.ofMinutes(1), settings.shadowCompare());
    assertEquals(Settings.OnUnsupported.REFUSE, settings.onUnsupported());
    assertTrue(settings.namespaces().contains("public/default/persistent/topic"));
  }

  @Test
  void anAddressMayBeASocketOfTheFileSystem() {
    String address = "unix:/run/cursorkeeper/acks.sock";
    assertEquals(address, Settings.read(of("cursorKeeperAddress", address)).address());
  }

  @Test
  void offNeedsNothing() {
    assertEquals(Settings.Mode.OFF, Settings.read(of("cursorKeeperMode", "off")).mode());
  }

  @Test
  void aShadowNeedsADaemon() {
    assertEquals(
        Settings.Mode.SHADOW,
        Settings.read(of("cursorKeeperMode", "shadow", "cursorKeeperAddress", "a:1")).mode());
    String said =
        assertThrows(SettingsException.class, () -> Settings.read(of("cursorKeeperMode", "shadow")))
            .getMessage();
    assertTrue(said.contains("cursorKeeperAddress"), said);
  }

  @Test
  void whatIsWrongIsNamedWithItsRemedy() {
    refused("cursorKeeperAddress", "localhost");
    refused("cursorKeeperAddress", "localhost:0");
    refused("cursorKeeperAddress", "");
    refused("cursorKeeperAddress", "unix:acks.sock");
    refused("cursorKeeperAddress", "unix:/" + "x".repeat(107));
    refused("cursorKeeperTokenFile", "/nowhere/token");
    refused("cursorKeeperMode", "maybe");
    refused("cursorKeeperShadowCompareMs", "0");
    refused("cursorKeeperShadowCompareMs", "86400001");
    refused("cursorKeeperShadowCompareMs", "1m");
    refused("cursorKeeperReceipts", "fast");
    refused("cursorKeeperOpenTimeoutMs", "60000");
    refused("cursorKeeperOpenTimeoutMs", "-1");
    refused("cursorKeeperOnFailedLoad", "open");
    refused("cursorKeeperWaitingAcksMax", "0");
    refused("cursorKeeperWaitingAcksBrokerMax", "1e6");
    refused("cursorKeeperCursorMetricsMax", "1001");
    refused("cursorKeeperNamespaces", "public");
    refused("cursorKeeperNamespaces", "public/default,");
    refused("cursorKeeperAdress", "a:1");
  }

  @Test
  void filesOfTlsAreThoseOfTheBroker(@TempDir Path folder) throws IOException {
    Path own = Files.writeString(folder.resolve("own.pem"), "");
    Path ofClients = Files.writeString(folder.resolve("clients.pem"), "");
    Properties lines =
        of(
            "cursorKeeperAddress",
            "a:1",
            "tlsTrustCertsFilePath",
            own.toString(),
            "tlsCertificateFilePath",
            own.toString(),
            "tlsKeyFilePath",
            own.toString());
    assertTrue(Settings.read(lines).tls().isEmpty());
    lines.setProperty("cursorKeeperTlsEnabled", "true");
    lines.setProperty("cursorKeeperTlsServerName", "broker.example.com");
    lines.setProperty("brokerClientTrustCertsFilePath", ofClients.toString());
    assertEquals(
        new LinkTls(
            Optional.of(ofClients), Optional.of(own), Optional.of(own), "broker.example.com"),
        Settings.read(lines).tls().get());
    for (String name : new String[] {"tlsKeyFilePath", "brokerClientTrustCertsFilePath"}) {
      String good = lines.getProperty(name);
      lines.setProperty(name, "/nowhere/file");
      String said = assertThrows(SettingsException.class, () -> Settings.read(lines)).getMessage();
      assertTrue(said.contains(name + "=/nowhere/file") && said.contains("What to do: "), said);
      lines.setProperty(name, good);
    }
    lines.setProperty("brokerClientCertificateFilePath", ofClients.toString());
    String half = assertThrows(SettingsException.class, () -> Settings.read(lines)).getMessage();
    assertTrue(half.contains("brokerClientCertificateFilePath=" + ofClients), half);
    lines.remove("brokerClientCertificateFilePath");
    lines.setProperty("tlsKeyFilePath", "");
    assertThrows(SettingsException.class, () -> Settings.read(lines));
    lines.setProperty("cursorKeeperTlsEnabled", "yes");
    assertThrows(SettingsException.class, () -> Settings.read(lines));
  }

  @Test
  void namespacesChooseTopics() {
    Namespaces some =
        Settings.read(
                of(
                    "cursorKeeperAddress",
                    "a:1",
                    "cursorKeeperNamespaces",
                    "public/default, shop/*"))
            .namespaces();
    assertTrue(some.contains("public/default/persistent/topic"));
    assertTrue(some.contains("shop/orders/persistent/topic-partition-3"));
    assertFalse(some.contains("public/other/persistent/topic"));
    assertFalse(some.contains("public/default2/persistent/topic"));
    assertFalse(some.contains("shopping/orders/persistent/topic"));
    assertFalse(some.contains("odd"));
  }
}
