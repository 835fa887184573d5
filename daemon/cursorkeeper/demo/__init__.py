"""The main job, played from end to end with real processes and real kills."""
