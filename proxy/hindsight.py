"""What an answer came to that the upstream made in the background, written into the session that was given it while it was being made."""

from collections.abc import Sequence

from proxy.chains import MOST_NAMED, complete
from proxy.fingerprint import Fingerprints
from proxy.identity import Keys
from proxy.models import Answer
from proxy.state import dump, load
from proxy.store import Account, Store
from proxy.turns import said_mark

_CONFLICTS = 16  # lost races in a row before it is given up


async def learn(
    store: Store, session: bytes, scope: bytes, names: Sequence[str], answer: Answer, tools: tuple[Keys, Fingerprints], ttl: float
) -> None:
    """names: what a client may go on from the answer by. Nothing where the session does not wait for it. Raises `StoreUnavailable`."""
    keys, prints = tools
    choice = answer.choices[0]
    said = said_mark(choice.text, prints)
    links = [keys.kept(scope, item) for item in choice.items[-MOST_NAMED:]]
    for _ in range(_CONFLICTS):
        (found,) = await store.peek([Account(session)])
        if found is None:
            return
        record = load(found.record, keys.secret_id())
        if not complete(record, names, answer, said, prints):
            return
        done = await store.commit(session, record=dump(record), version=found.version, settlements=[], links=links, ttl=ttl)
        if not done.conflict:
            return
