package io.cursorkeeper.client;

/** Why a cursor, or a call, ended. The message names the cursor and says what to do. */
public final class KeeperException extends RuntimeException {

  private static final long serialVersionUID = 1;

  /** What happened. Up to NOT_ALLOWED the keeper's own codes; what follows is said on this side. */
  public enum Code {
    BAD_MESSAGE,
    UNKNOWN_HANDLE,
    POSITION_OUT_OF_RANGE,
    BATCH_CONTRADICTS,
    LAYOUT_CONTRADICTS,
    WRONG_GENERATION,
    CREDIT_EXCEEDED,
    TOO_LARGE,
    /** Held by another handle of this daemon; takeover takes it. */
    ALREADY_OPEN,
    /** Another daemon holds it; takeover claims it. */
    OPEN_ELSEWHERE,
    NOT_FOUND,
    /** Nothing trustworthy is left, or not readable by this version: an operator must decide. */
    DAMAGED,
    FOOTER_LOST,
    TOO_MANY_CURSORS,
    NAME_TOO_LONG,
    FORMAT_TOO_NEW,
    SHUTTING_DOWN,
    /** The daemon's stores answer nobody. */
    UNAVAILABLE,
    SEQ_NOT_GROWING,
    FOOTER_REPLACED,
    /** A higher fencing token was seen: this load of the topic is over. */
    FENCED,
    /** The source's identity has no right to the topic. */
    NOT_ALLOWED,

    /** Somebody else opened the cursor, or set it back. */
    DEPOSED,
    /** It was closed, here or by the daemon. */
    CLOSED,
    DELETED,
    /** No answer in time; it may still come true. */
    TIMED_OUT,
    /** No daemon could be reached in time. */
    AWAY,
    /** The daemon does not want this link: credentials, protocol versions. */
    LINK_REFUSED,
    /** The link was closed here. */
    LINK_CLOSED,
    /** A refusal that this version does not know. */
    UNKNOWN
  }

  private final Code code;
  private final String cursor;
  private final String remedy;

  public KeeperException(Code code, String cursor, String message, String remedy) {
    super(
        (cursor.isEmpty() ? "" : cursor + ": ")
            + code
            + ": "
            + message
            + ". What to do: "
            + remedy);
    this.code = code;
    this.cursor = cursor;
    this.remedy = remedy;
  }

  public Code code() {
    return code;
  }

  /** {@code topic|subscription}, or empty. */
  public String cursor() {
    return cursor;
  }

  public String remedy() {
    return remedy;
  }

  /** Whether the same again may succeed after a while. */
  public boolean retryable() {
    return switch (code) {
      case TOO_MANY_CURSORS, SHUTTING_DOWN, UNAVAILABLE, TIMED_OUT, AWAY -> true;
      default -> false;
    };
  }
}
