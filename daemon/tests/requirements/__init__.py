"""One file per group of requirements; every `test_rNN_...` is named in REQUIREMENTS.md, and `test_page` compares the two."""
