package io.cursorkeeper.client;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;

/**
 * Runs the contract against the daemon at {@code -Dcursorkeeper.address}. On standard output it
 * asks for {@code kill} and {@code start}, and waits for the same word on standard input; a line
 * that begins with {@code #} says what was run.
 */
final class ContractMain {

  private ContractMain() {}

  public static void main(String[] args) {
    SummaryGeneratingListener summary = new SummaryGeneratingListener();
    Launcher launcher = LauncherFactory.create();
    long began = System.nanoTime();
    launcher.execute(
        LauncherDiscoveryRequestBuilder.request()
            .selectors(selectClass(RealContractTest.class))
            .build(),
        summary,
        new TestExecutionListener() {
          @Override
          public void executionStarted(TestIdentifier test) {
            if (test.isTest()) {
              System.err.printf(
                  "%6d ms %s%n", (System.nanoTime() - began) / 1_000_000, test.getDisplayName());
            }
          }

          @Override
          public void testPlanExecutionFinished(TestPlan plan) {
            System.err.printf("%6d ms end%n", (System.nanoTime() - began) / 1_000_000);
          }
        });
    summary
        .getSummary()
        .printFailuresTo(new PrintWriter(System.err, false, StandardCharsets.UTF_8), 30);
    System.out.println(
        "# succeeded "
            + summary.getSummary().getTestsSucceededCount()
            + " failed "
            + summary.getSummary().getTotalFailureCount());
    System.exit(summary.getSummary().getTotalFailureCount() == 0 ? 0 : 1);
  }
}
