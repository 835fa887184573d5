"""What a release is made of, and what is known about it: bills of materials in CycloneDX's form,
checksums, audits.

For who makes a release (`make dist`, `make image-sboms`) and for who watches one (`make audit`).
"""
