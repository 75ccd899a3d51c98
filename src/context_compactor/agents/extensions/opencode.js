// Written by `compactor install opencode`, and written anew by every later install: changes made here are lost.
//
// Lets Context Compactor compact the conversations of OpenCode. Whenever there is any doubt (the command fails, is slow,
// or answers with something else than a record), nothing is changed, and OpenCode compacts by itself.

import { spawn } from "node:child_process";
import { homedir } from "node:os";

const COMMAND = ["compactor"];
const AGENT = "opencode";
const MISSING =
  `Context Compactor does not run: ${COMMAND.join(" ")} is not there, or broken. OpenCode compacts by itself. ` +
  "Try: install the package again, then compactor install opencode";
// OpenCode always asks its model for the summary. Where our record stands for the answer, this is all it is asked.
const NOTHING_TO_DO = "The summary is written already. Answer with this one word and nothing else: done";

export const Compactor = async ({ client, directory }) => {
  const asked = new Map(); // by session: what OpenCode is about to ask its model for
  const records = new Map(); // by session: what stands for the answer
  const others = new Set(); // sessions in which OpenCode's own model is writing the summary

  let isTold = false;

  /** Everything that was ever said in a session, in OpenCode's own form. */
  async function messagesOf(sessionID) {
    const { data } = await client.session.messages({ path: { id: sessionID } });
    return data ?? [];
  }

  function call(sessionID, messages, more) {
    return { session_id: sessionID, cwd: directory, messages, ...more };
  }

  /** Our record, or our words for the request, once it is known which messages OpenCode will compact. */
  async function compact(sessionID, head, prompt) {
    const all = await messagesOf(sessionID);
    const end = all.findIndex((message) => message.info.id === head.at(-1).info.id) + 1;
    // The request for a compaction is then the newest message. Anything else is another request, and left alone.
    const request = all.at(-1)?.parts.find((part) => part.type === "compaction");
    if (!request || end === 0) return;
    others.add(sessionID);
    const trigger = request.auto ? "auto" : "manual";
    const answer = await ask("compact", call(sessionID, all.slice(0, end), { trigger }));
    if (answer.isMissing && !isTold) {
      isTold = true;
      await client.tui.showToast({ body: { message: MISSING, variant: "warning" } });
    } else if (isText(answer.record)) {
      others.delete(sessionID);
      records.set(sessionID, [answer.record, ...openPrompts(head)].join("\n\n"));
      prompt.prompt = NOTHING_TO_DO;
      head.length = 0;
    } else if (isText(answer.instructions)) {
      const before = all.findLast((message) => message.info.summary === true && message.info.finish);
      const summary = before?.parts.map((part) => part.text ?? "").join("\n").trim();
      const earlier = summary ? `\n\n<previous-summary>\n${summary}\n</previous-summary>` : "";
      prompt.prompt = `${answer.instructions}\n\nThe conversation stands below.${earlier}`;
    }
  }

  /** OpenCode's own summary, and behind it what it lost of what was known. */
  async function withBrief(sessionID, { info }, text) {
    const before = (await messagesOf(sessionID)).filter((message) => message.info.id !== info.id);
    const written = { info: { ...info, finish: "stop" }, parts: [{ type: "text", text }] };
    const answer = await ask("session-start", call(sessionID, [...before, written], { source: "compact" }));
    const brief = answer.hookSpecificOutput?.additionalContext;
    return isText(brief) ? `${text}\n\n${brief}` : text;
  }

  const hooks = {
    config(config) {
      const server = { type: "local", command: [...COMMAND, "mcp"], environment: { PATH: searchPath() }, enabled: true };
      config.mcp = { compactor: server, ...config.mcp };
    },

    "experimental.session.compacting": async ({ sessionID }, output) => {
      asked.set(sessionID, output);
    },

    // Called just after, with the messages that are compacted; and before every other request, which is left alone.
    "experimental.chat.messages.transform": async (_input, { messages }) => {
      const sessionID = messages.at(-1)?.info.sessionID;
      const prompt = asked.get(sessionID);
      asked.delete(sessionID);
      if (messages.length === 0) asked.clear();
      if (prompt) await compact(sessionID, messages, prompt);
      else complete(messages, records.get(sessionID));
    },

    "experimental.text.complete": async ({ sessionID, messageID }, output) => {
      if (!records.has(sessionID) && !others.has(sessionID)) return;
      const { data } = await client.session.message({ path: { id: sessionID, messageID } });
      if (data?.info.summary !== true) return;
      const isOther = others.delete(sessionID);
      const record = records.get(sessionID);
      records.delete(sessionID);
      output.text = isOther ? await withBrief(sessionID, data, output.text) : record;
    },

    event: async ({ event }) => {
      const { sessionID } = event.properties ?? {};
      if (event.type === "session.error") records.delete(sessionID);
      if (event.type === "session.compacted") await ask("post-compact", call(sessionID, await messagesOf(sessionID)));
    },
  };
  return Object.fromEntries(Object.entries(hooks).map(([name, hook]) => [name, unharmed(hook)]));
};

/** Put a record into a summary that has stayed empty, since a model that answers with nothing completes no text. */
function complete(messages, record) {
  const { info, parts } = messages.findLast((message) => message.info.summary === true) ?? {};
  if (record === undefined || !info?.finish || info.error || parts.some((part) => isText(part.text))) return;
  parts.push({ id: `${info.id}-record`, sessionID: info.sessionID, messageID: info.id, type: "text", text: record });
}

/** What the user said last and nobody has answered in these messages: that is not in the record. */
function openPrompts(head) {
  const open = head.slice(head.findLastIndex((message) => message.info.role === "assistant") + 1);
  return open.flatMap(({ parts }) => parts.filter((part) => isText(part.text)).map((part) => `The user: ${part.text}`));
}

/** A hook whose errors do not reach OpenCode, which would give up the whole turn. */
function unharmed(hook) {
  return async (...given) => {
    try {
      await hook(...given);
    } catch {
      return;
    }
  };
}
