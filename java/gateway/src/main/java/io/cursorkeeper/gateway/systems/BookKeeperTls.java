package io.cursorkeeper.gateway.systems;

import java.security.Provider;
import java.security.Security;

/**
 * Loads BookKeeper's class of TLS, for the gateway and for bookies of tests. The class refuses to
 * be loaded unless there is a security provider with Bouncy Castle's name, which it then never
 * uses: keys are read by Netty and the JDK, and TLS is the JDK's. So it is loaded while an empty
 * provider has the name, and 8 MB of classes stay out of the jar. With Bouncy Castle on the class
 * path nothing is done.
 */
public final class BookKeeperTls {
  private static final String BOUNCY_CASTLE = "BC";
  private static final String BOUNCY_CASTLE_FIPS = "BCFIPS";

  private BookKeeperTls() {}

  /** Again and again, if need be. */
  public static synchronized void load() {
    boolean isMissing =
        Security.getProvider(BOUNCY_CASTLE) == null
            && Security.getProvider(BOUNCY_CASTLE_FIPS) == null
            && !isThere("org.bouncycastle.jce.provider.BouncyCastleProvider")
            && !isThere("org.bouncycastle.jcajce.provider.BouncyCastleFipsProvider");
    if (isMissing) {
      Security.addProvider(new Nothing());
    }
    try {
      Class.forName(ClientSettings.TLS_FACTORY);
    } catch (ClassNotFoundException impossible) {
      throw new IllegalStateException(impossible);
    } finally {
      if (isMissing) {
        Security.removeProvider(BOUNCY_CASTLE);
      }
    }
  }

  private static boolean isThere(String name) {
    try {
      Class.forName(name, false, BookKeeperTls.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException absent) {
      return false;
    }
  }

  private static final class Nothing extends Provider {
    private static final long serialVersionUID = 1L;

    Nothing() {
      super(BOUNCY_CASTLE, "0", "stands for Bouncy Castle while a class is loaded");
    }
  }
}
