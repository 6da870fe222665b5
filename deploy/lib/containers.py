"""Checks docker-compose.yml and deploy/Dockerfile without a container engine. Needs PyYAML. Run by check-compose."""

import fnmatch
import functools
import pathlib
import re
import shlex
import sys
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = {"ingress", "worker", "webhookctl"}
OURS = ("migrate", "ingress", "worker")
# Read by env_logger itself, hence named nowhere in our sources.
FOREIGN_SETTINGS = {"RUST_LOG"}

problems = []


def expect(holds, problem):
    if not holds:
        problems.append(problem)


# --- docker-compose.yml ---------------------------------------------------------------------------------------------


def check_services(services):
    expect(set(services) >= {"postgres", "rabbitmq", *OURS}, f"services are missing: found {sorted(services)}")
    for name, service in services.items():
        check_dependencies(name, service, services)
        for port in service.get("ports", []):
            expect(str(port).startswith("127.0.0.1:"), f"{name} publishes {port} on every address")
        image = service.get("image", "")
        expect(":" in image and not image.endswith(":latest"), f"{name}: image {image!r} has no fixed tag")
    for name in OURS:
        check_own_service(name, services.get(name, {}))
    worker = services.get("worker", {})
    for key in ("container_name", "ports", "hostname"):
        expect(key not in worker, f"worker has `{key}`: it could not be scaled")
    expect(services.get("migrate", {}).get("restart") == "no", "migrate must run once: restart: \"no\"")


def check_dependencies(name, service, services):
    for other, how in service.get("depends_on", {}).items():
        expect(other in services, f"{name} depends on {other}, which is no service")
        target, condition = services.get(other, {}), how.get("condition")
        if condition == "service_healthy":
            expect("healthcheck" in target, f"{name} waits for {other} to be healthy, which has no healthcheck")
        elif condition == "service_completed_successfully":
            expect(target.get("restart") == "no", f"{name} waits for {other} to end, which is restarted")
        else:
            expect(condition == "service_started", f"{name}: unknown condition {condition!r} on {other}")


def check_own_service(name, service):
    command = service.get("command", [])
    expect(command and command[0] in BINARIES, f"{name}: command {command} is none of {sorted(BINARIES)}")
    for setting in service.get("environment", {}):
        expect(is_known(setting), f"{name}: no binary reads the setting {setting}")
    if name != "migrate":
        expect("healthcheck" in service, f"{name} has no healthcheck")
        depends = service.get("depends_on", {}).get("migrate", {})
        expect(depends.get("condition") == "service_completed_successfully", f"{name} does not wait for migrate")
    check = service.get("healthcheck", {}).get("test", [])
    expect(not check or check[:2] == ["CMD", "probe"], f"{name}: the image has only `probe` for health checks")


def is_known(setting):
    return setting in FOREIGN_SETTINGS or re.search(rf'"{re.escape(setting)}"', sources()) is not None


@functools.cache
def sources():
    files = [file for crate in ("shared", "ingress", "worker") for file in (ROOT / crate / "src").rglob("*.rs")]
    return "\n".join(file.read_text() for file in files)


def check_variables(text):
    example = (ROOT / "deploy/compose.env.example").read_text()
    for name, default in re.findall(r"\$\{([A-Z_]+)(:-[^}]+)?\}", text):
        expect(default, f"${{{name}}} has no default: `docker compose up` would start with it empty")
        expect(re.search(rf"^{name}=", example, re.M), f"{name} is not in deploy/compose.env.example")
    # A lone `%` or `$` in a URL is a common slip: `$` starts a variable in compose files.
    expect(not re.search(r"\$(?!\{|\$)", re.sub(r"(?m)#.*$", "", text)), "a lone `$` in docker-compose.yml")


# --- Dockerfile -----------------------------------------------------------------------------------------------------


def instructions(text):
    """(name, argument) of each instruction, continuation lines joined and comments dropped."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.strip().split(None, 1)) for line in joined.splitlines() if line.strip()]


def check_dockerfile(text):
    stages, users, from_context, produced = set(), [], [], set()
    for name, argument in instructions(text):
        if name == "FROM":
            image, *alias = argument.split(" AS ")
            expect(":" in image and not image.endswith(":latest"), f"FROM {image}: no fixed tag")
            stages.update(stage.strip() for stage in alias)
            users.clear()
        elif name == "COPY":
            words = shlex.split(argument)
            options = [word for word in words if word.startswith("--")]
            paths = [word for word in words if not word.startswith("--")][:-1]
            stage = next((option[7:] for option in options if option.startswith("--from=")), None)
            if stage is None:
                from_context += paths
            else:
                expect(stage in stages, f"COPY --from={stage}: no such stage")
                produced.update(pathlib.PurePath(path).name for path in paths)
        elif name == "USER":
            users.append(argument)
        else:
            expect(name in {"ARG", "RUN", "WORKDIR", "ENV", "EXPOSE", "STOPSIGNAL", "CMD", "LABEL"},
                   f"unexpected instruction {name}")
        if name == "ENV":
            for setting in re.findall(r"(\w+)=", argument):
                expect(setting.startswith("CARGO_") or is_known(setting), f"ENV {setting}: no binary reads it")
    expect(users and not users[-1].startswith(("0", "root")), "the image runs as root")
    expect(produced == BINARIES, f"the image holds {sorted(produced)}, not {sorted(BINARIES)}")
    check_context(from_context)


def check_context(paths):
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and not line.startswith("#")]
    for path in paths:
        expect((ROOT / path).exists(), f"COPY {path}: no such file")
        expect(is_sent(path, ignored), f"COPY {path}: excluded by .dockerignore")
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    for member in members:
        expect(any(member == path or member.startswith(f"{path}/") for path in paths),
               f"workspace member {member} is not copied: cargo would refuse to build")


def is_sent(path, patterns):
    """The last pattern that matches decides, as in Docker's own matching."""
    sent = True
    for pattern in patterns:
        wanted = pattern.lstrip("!")
        if fnmatch.fnmatch(path, wanted) or path.startswith(f"{wanted}/"):
            sent = pattern.startswith("!")
    return sent


def check_binaries():
    for binary in BINARIES:
        crate = binary if (ROOT / binary).is_dir() else "worker"
        places = ("src/main.rs",) if crate == binary else (f"src/bin/{binary}.rs", f"src/bin/{binary}/main.rs")
        expect(any((ROOT / crate / place).exists() for place in places), f"no source of the binary {binary}")


def main():
    compose = (ROOT / "docker-compose.yml").read_text()
    check_services(yaml.safe_load(compose)["services"])
    check_variables(compose)
    check_dockerfile((ROOT / "deploy/Dockerfile").read_text())
    check_binaries()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
