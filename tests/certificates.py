"""Keys and certificates made on the spot, for servers that speak TLS on loopback."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import missing


@dataclass(frozen=True)
class Certified:
    """A certificate for 127.0.0.1, its key, and the authority that vouches for it, itself."""

    key: Path
    certificate: Path

    @property
    def of_server(self) -> tuple[str, ...]:
        """What makes a Redis show it, and want one of the same authority's from clients."""
        own = ("--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key))
        return (*own, "--tls-ca-cert-file", str(self.certificate), "--tls-replication", "yes")

    @property
    def trusting(self) -> str:
        """Options of a store's URL: believe in it."""
        return f"ssl_ca_certs={self.certificate}"

    @property
    def showing(self) -> str:
        """Options of a store's URL: show it, too."""
        return f"ssl_certfile={self.certificate}&ssl_keyfile={self.key}"


def self_signed(folder: Path, *, host: str = "IP:127.0.0.1") -> Certified:
    """host: whom it is for, as in `DNS:example.com`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        missing("openssl on the PATH")
    made = Certified(folder / "key.pem", folder / "certificate.pem")
    command = [str(openssl), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", f"subjectAltName={host}", "-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made
