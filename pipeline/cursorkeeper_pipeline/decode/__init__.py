"""Pure: acknowledgement states as columns. No Spark, no client, no clock."""
