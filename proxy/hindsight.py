"""What an answer came to that the upstream made in the background, written into the session that was given it while it was being made."""

from collections.abc import Sequence

from proxy.chains import MOST_NAMED, complete
from proxy.contention import written
from proxy.fingerprint import Fingerprints
from proxy.identity import Keys
from proxy.models import Answer
from proxy.state import dump, load
from proxy.store import Account, Committed, Store
from proxy.turns import said_mark


async def learn(
    store: Store, session: bytes, scope: bytes, names: Sequence[str], answer: Answer, tools: tuple[Keys, Fingerprints], ttl: float
) -> None:
    """names: what a client may go on from the answer by. Nothing where the session does not wait for it. Raises `StoreUnavailable`."""
    keys, prints = tools
    choice = answer.choices[0]
    said = said_mark(choice.text, prints)
    links = [keys.kept(scope, item) for item in choice.items[-MOST_NAMED:]]

    async def commit(record: bytes | None, version: int, _: bool) -> Committed:
        return await store.commit(session, record=record, version=version, settlements=[], links=links, ttl=ttl)

    async def anew(standing: bytes | None) -> bytes | None:
        record = load(standing, keys.secret_id())
        return dump(record) if complete(record, names, answer, said, prints) else None

    (found,) = await store.peek([Account(session)])
    if found is not None and (record := await anew(found.record)) is not None:
        await written(commit, anew, record, found.version)
