"""Ask pip-audit for known vulnerabilities of everything that is locked.

Run it with `make audit`. pip-audit reports "no known vulnerabilities" for packages that its service does not know, also
if the service as a whole is out of reach; here nothing audited is said to be that, and some is counted.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = ("test.txt", "torch.txt", "tools.txt")


def main() -> int:
    """Audit the lock files; return 1 if there are vulnerabilities."""
    audited, skipped, vulnerable = 0, 0, 0
    for lock in LOCKS:
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(HERE / lock), "--require-hashes"]
        command += ["--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if not result.stdout:
            last = (result.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{lock} was not audited, pip-audit failed: {last}")
            continue
        for package in json.loads(result.stdout)["dependencies"]:
            audited += "vulns" in package
            skipped += "vulns" not in package
            vulnerable += bool(package.get("vulns"))
            for found in package.get("vulns", []):
                fixed = ", ".join(found["fix_versions"]) or "no version"
                print(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    if not audited:
        print("Skipped: the vulnerability service cannot be reached or knows none of the packages; nothing audited.")
    else:
        print(f"{audited} packages audited, {vulnerable} with known vulnerabilities; {skipped} unknown to the service.")
    return int(vulnerable > 0)


if __name__ == "__main__":
    sys.exit(main())
