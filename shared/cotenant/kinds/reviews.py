"""Reviews of the caller's own identity, and of permissions. They are answered at once and not stored.

authentication.k8s.io/v1 SelfSubjectReview (`kubectl auth whoami`) and TokenReview; authorization.k8s.io/v1
SelfSubjectAccessReview and SelfSubjectRulesReview (`kubectl auth can-i`, `can-i --list`), SubjectAccessReview and
LocalSubjectAccessReview.
"""

from __future__ import annotations

from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind

AUTHENTICATION_GROUP = "authentication.k8s.io"
AUTHORIZATION_GROUP = "authorization.k8s.io"
SELF_SUBJECT_REVIEWS = Kind(AUTHENTICATION_GROUP, "v1", "selfsubjectreviews", "SelfSubjectReview", False)
SELF_SUBJECT_ACCESS_REVIEWS = Kind(AUTHORIZATION_GROUP, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
SELF_SUBJECT_RULES_REVIEWS = Kind(AUTHORIZATION_GROUP, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False)
SUBJECT_ACCESS_REVIEWS = Kind(AUTHORIZATION_GROUP, "v1", "subjectaccessreviews", "SubjectAccessReview", False)
TOKEN_REVIEWS = Kind(AUTHENTICATION_GROUP, "v1", "tokenreviews", "TokenReview", False)
LOCAL_SUBJECT_ACCESS_REVIEWS = Kind(AUTHORIZATION_GROUP, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True)

DEFINITIONS = tuple(
    KindDefinition(kind, create_only=True)
    for kind in (
        SELF_SUBJECT_REVIEWS,
        SELF_SUBJECT_ACCESS_REVIEWS,
        SELF_SUBJECT_RULES_REVIEWS,
        SUBJECT_ACCESS_REVIEWS,
        LOCAL_SUBJECT_ACCESS_REVIEWS,
        TOKEN_REVIEWS,
    )
)
