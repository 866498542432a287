"""By what a session is found that its client does not name: the answers that a history carries, and passages of them."""

from collections.abc import Sequence

from proxy.bounded import leaving
from proxy.engine import Case
from proxy.identity import Keys, is_random, passages
from proxy.models import Choice, Role, text_of
from proxy.trail import answer_identity

_LINKED_CALLS = 6  # calls of the newest messages that a history is looked up by
_PASSAGES_ASKED, _PASSAGES_KEPT = 32, 4
_MOST_STORED = 4096  # sessions


def links_of(case: Case, keys: Keys, scope: bytes, *, named: bool) -> list[bytes]:
    """What a history may be known by, the surest first: its whole line of answers, then its newest calls. named: the session is."""
    history = case.history
    if case.request.refers:
        return [keys.kept(scope, reference.id) for reference in reversed(case.request.refers[-_LINKED_CALLS:])]
    went_before = case.request.goes_on_from
    if went_before is not None:
        return [keys.kept(scope, went_before)]
    if not history.messages:
        return []
    if named and not any(is_random(call) for made in history.messages.made for call in made):
        return []  # a named session's links are open to whoever knows its name: what models say alike proves nothing
    links = [keys.chain(scope, history.seed, history.messages.line)]
    if named:
        return links
    newest = zip(history.messages.made[-3:], history.messages.fingerprints[-3:], strict=True)
    for made, fingerprints in reversed(list(newest)):
        for call, fingerprint in zip(made[:_LINKED_CALLS], fingerprints, strict=False):
            link = keys.call(scope, call, fingerprint)
            if link is not None:
                links.append(link)
    return links[: _LINKED_CALLS + 1]


def passage_links(case: Case, keys: Keys, scope: bytes) -> list[bytes]:
    """The same of passages that its texts may quote."""
    texts = [text_of(item.content) for item in case.request.items if item.role is Role.USER]
    return [keys.passage(scope, piece) for piece in passages("\n".join(texts), _PASSAGES_ASKED)]


def links_after(case: Case, keys: Keys, scope: bytes, choices: Sequence[Choice], *, named: bool) -> list[bytes]:
    """What a later history is found by: the line of answers with this one, its calls, and passages of its text."""
    history, prints = case.history, case.prints
    links: list[bytes] = []
    for choice in choices:
        said = [answer_identity("", (call,), prints) for call in choice.hosted] if choice.hosted else []
        if not said or choice.calls or choice.text.strip():
            said.append(answer_identity(choice.text, choice.calls, prints))
        links.append(keys.chain(scope, history.seed, history.messages.line, said))
        if named:
            continue
        links += [
            link
            for call in choice.calls[:_LINKED_CALLS]
            if (link := keys.call(scope, call, prints.call(call.name, call.arguments))) is not None
        ]
        links += [keys.passage(scope, piece) for piece in passages(choice.text, _PASSAGES_KEPT)]
    return links


class Linked:
    """To which sessions the answers lead that this process gave: until they are in the store, and for a while after, which saves a look.

    After that only the newest of each session: what a session said before, another may have said since, in another process.
    lasts: for how many seconds what is in the store may be relied on.
    """

    def __init__(self, lasts: float) -> None:
        self._lasts = lasts
        self._under_way: dict[bytes, bytes] = {}
        self._stored: dict[bytes, tuple[bytes, float]] = {}
        self._newest: dict[bytes, Sequence[bytes]] = {}  # what is stored, by session; the newest stand last

    def begin(self, links: Sequence[bytes], session: bytes) -> None:
        """They are on their way to the store, where they take the place of what led elsewhere."""
        for link in links:
            self._under_way[link] = session
            self._stored.pop(link, None)

    def end(self, links: Sequence[bytes]) -> None:
        """They are there, or will not be."""
        for link in links:
            self._under_way.pop(link, None)

    def stored(self, links: Sequence[bytes], session: bytes, now: float) -> None:
        """They are there. now: epoch seconds."""
        self._forget(session)
        self._newest[session] = links
        for link in links:
            self._stored[link] = session, now + self._lasts
        if len(self._newest) > _MOST_STORED:
            for oldest in leaving(self._newest, _MOST_STORED):
                self._forget(oldest)

    def _forget(self, session: bytes) -> None:
        for link in self._newest.pop(session, ()):
            if (found := self._stored.get(link)) is not None and found[0] == session:
                del self._stored[link]

    def not_yet_stored(self, links: Sequence[bytes]) -> bytes | None:
        """The session of the first of these links that is on its way."""
        return next((self._under_way[link] for link in links if link in self._under_way), None) if self._under_way else None

    def surest(self, links: Sequence[bytes], now: float) -> bytes | None:
        """The session that the first of a history's links leads to: the line of all its answers, or the name of the newest."""
        session, until = self._stored.get(links[0], (None, now)) if links else (None, now)
        return session if now < until else None
