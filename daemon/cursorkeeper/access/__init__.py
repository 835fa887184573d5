"""Who calls a daemon, and what they may: identities, rights, quotas, and the audit log. Serves
whoever runs a daemon that others reach.
"""
