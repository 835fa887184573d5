import io.cursorkeeper.pulsar.Settings;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/** Serves the tests of the pages: what the plugin makes of each file of broker.conf's lines. */
public class ReadSettings {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties lines = new Properties();
            try (var from = Files.newBufferedReader(Path.of(file))) {
                lines.load(from);
            }
            System.out.println(Settings.read(lines));
        }
    }
}
