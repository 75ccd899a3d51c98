// What stands at the end of every extension: an install puts it behind pi.js and opencode.js, since each is one file.

const SECONDS = 20;
const LAUNCHER = `${homedir()}/.local/state/compactor/bin`;

/** What `compactor hook` answers; an empty object when it does not answer as it should. */
function ask(event, input, signal) {
  return new Promise((resolve) => {
    const words = [...COMMAND.slice(1), "hook", event, "--agent", AGENT];
    const env = { ...process.env, PATH: searchPath() };
    const child = spawn(COMMAND[0], words, { cwd: input.cwd, env, signal, stdio: ["pipe", "pipe", "ignore"] });
    const timer = setTimeout(() => done({}), SECONDS * 1000);
    const done = (answer) => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      resolve(answer);
    };
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (part) => (output += part));
    child.stdin.on("error", () => {}); // it may end before it has read everything
    child.on("error", () => done({ isMissing: true }));
    child.on("close", (code) => done(code === 0 ? parsed(output) : {}));
    child.stdin.end(JSON.stringify(input));
  });
}

function parsed(output) {
  try {
    return Object(JSON.parse(output));
  } catch {
    return {};
  }
}

function isText(value) {
  return typeof value === "string" && value.trim() !== "";
}

/** Behind everything on the PATH: the command that the last install on this machine was run by. */
function searchPath() {
  return `${process.env.PATH ?? ""}:${LAUNCHER}`;
}
