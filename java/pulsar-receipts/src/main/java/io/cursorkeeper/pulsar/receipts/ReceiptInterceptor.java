package io.cursorkeeper.pulsar.receipts;

import io.cursorkeeper.pulsar.CursorKeeperStorage;
import io.cursorkeeper.pulsar.ReceiptPolicy;
import io.netty.channel.ChannelHandlerContext;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.intercept.BrokerInterceptor;
import org.apache.pulsar.broker.service.ServerCnx;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the broker's operator: what {@code brokerInterceptors=cursorkeeper-receipts} loads. Puts a
 * {@link ReceiptGate} into every connection, if cursors are kept and receipts wait for them;
 * otherwise it does nothing.
 *
 * <p>The NAR holds its name only: the class is found in the plugin's jar, where the cursors see it
 * too.
 */
public final class ReceiptInterceptor implements BrokerInterceptor {

  private static final Logger LOG = LoggerFactory.getLogger(ReceiptInterceptor.class);
  private static final String HANDLER = ReceiptPolicy.INTERCEPTOR;

  /** Null: no receipt waits. Set before the broker listens. */
  private volatile ReadingSwitch reading;

  /** Raises SettingsException, which ends the broker's start. */
  @Override
  public void initialize(PulsarService pulsar) {
    ReceiptPolicy.checkInterceptor();
    ReadingSwitch found = ReadingSwitch.find(ServerCnx.class);
    AckResponses.check();
    if (pulsar.getManagedLedgerStorage() instanceof CursorKeeperStorage storage
        && storage.receiptsAreDurable()) {
      reading = found;
      LOG.info("Receipts of acks wait until the CursorKeeper daemon has the acks durable");
    } else {
      LOG.warn(
          "{} is loaded and does nothing: this broker's cursors are not kept, or their receipts do"
              + " not wait",
          HANDLER);
    }
  }

  @Override
  public void onConnectionCreated(ServerCnx cnx) {
    ReadingSwitch known = reading;
    if (known != null) {
      ChannelHandlerContext pulsar = cnx.ctx();
      pulsar.pipeline().addBefore(pulsar.name(), HANDLER, new ReceiptGate(known.of(cnx)));
    }
  }

  @Override
  public void onPulsarCommand(BaseCommand command, ServerCnx cnx) {}

  @Override
  public void onConnectionClosed(ServerCnx cnx) {}

  @Override
  public void onWebserviceRequest(ServletRequest request) {}

  @Override
  public void onWebserviceResponse(ServletRequest request, ServletResponse response) {}

  @Override
  public void close() {}
}
