"""One file per group of requirements; every `test_rNN_...` is named in
docs/reference/requirements.md, and `test_page` compares the two.
"""
