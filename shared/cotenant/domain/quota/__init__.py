"""Elastic quotas as every service reads them: amounts, the typed view, membership, sums, admission and validation.

The rules are Koordinator's ElasticQuota plugin and webhooks; each module names the rule it follows.
"""
