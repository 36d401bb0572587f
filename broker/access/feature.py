"""Users and what each of them may do."""

from broker.access.guard import ACCESS_GUARD
from broker.access.plain_accounts import PlainAccounts
from broker.access.processor import AccessProcessor
from broker.access.state import ACCESS
from broker.serving.needs import any_user
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.user_shares import USER_SHARES
from broker.topics.needs import LOOK, OPERATE
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor, access, guard = AccessProcessor(parts), parts.state[ACCESS], parts[ACCESS_GUARD]
    accounts, shares = PlainAccounts(parts), parts[USER_SHARES]

    def figures() -> dict[str, str]:
        counts = {"users": str(len(access.users)), "accessRules": str(len(access.rules))}
        return counts if guard.is_on else {}

    return Service(
        handlers={
            RequestCode.AUTH_CREATE_USER: Handler(processor.create_user, OPERATE, is_audited=True),
            RequestCode.AUTH_UPDATE_USER: Handler(processor.update_user, OPERATE, is_audited=True),
            RequestCode.AUTH_DELETE_USER: Handler(processor.delete_user, OPERATE, is_audited=True),
            RequestCode.AUTH_GET_USER: Handler(processor.get_user, LOOK, confirmed=True),
            RequestCode.AUTH_LIST_USER: Handler(processor.list_users, LOOK, confirmed=True),
            RequestCode.AUTH_CREATE_ACL: Handler(processor.put_rules, OPERATE, is_audited=True),
            RequestCode.AUTH_UPDATE_ACL: Handler(processor.put_rules, OPERATE, is_audited=True),
            RequestCode.AUTH_DELETE_ACL: Handler(processor.delete_rules, OPERATE, is_audited=True),
            RequestCode.AUTH_GET_ACL: Handler(processor.get_rules, LOOK, confirmed=True),
            RequestCode.AUTH_LIST_ACL: Handler(processor.list_rules, LOOK, confirmed=True),
            RequestCode.CHECK_ACCESS: Handler(processor.check_access, any_user),
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: Handler(
                accounts.put, OPERATE, is_audited=True
            ),
            RequestCode.DELETE_ACL_CONFIG: Handler(accounts.delete, OPERATE, is_audited=True),
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: Handler(
                accounts.tell_version, LOOK, confirmed=True
            ),
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: Handler(accounts.tell, LOOK, confirmed=True),
        },
        applied=lambda _folded: guard.look(),
        dropped=shares.drop,
        figures=figures,
    )
