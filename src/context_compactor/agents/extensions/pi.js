// Written by `compactor install pi`, and written anew by every later install: changes made here are lost.
//
// Lets Context Compactor compact the conversations of pi. Whenever there is any doubt (the command fails, is slow, or
// answers with something else than a record), nothing is returned, and pi compacts by itself.

import { spawn } from "node:child_process";
import { homedir } from "node:os";

const COMMAND = ["compactor"];
const AGENT = "pi";
const MISSING =
  `Context Compactor does not run: ${COMMAND.join(" ")} is not there, or broken. pi compacts by itself. ` +
  "Try: install the package again, then compactor install pi";

export default function (pi) {
  let isTold = false;

  pi.registerMcpServer?.("compactor", {
    command: COMMAND[0],
    args: [...COMMAND.slice(1), "mcp"],
    env: { PATH: searchPath() },
    exposure: "hidden", // each tool stands in every request, so only those that a record names
    toolExposure: { recall: "direct", search_archive: "direct" },
    description: "Recalls what was compacted away in this conversation",
  });

  pi.on("session_before_compact", async (event, ctx) => {
    const { sessionManager } = ctx;
    // The log ends on the branch that was written last. After a jump in the tree that is another one than is compacted.
    if (sessionManager.getEntries().at(-1)?.id !== sessionManager.getLeafId()) return;
    const answer = await ask("compact", call(event, ctx), event.signal);
    if (answer.isMissing && !event.signal?.aborted && !isTold) {
      isTold = true;
      ctx.ui.notify(MISSING, "warning");
    }
    const { tokensBefore } = event.preparation;
    if (isText(answer.record)) {
      // Everything else is in the record. Where nothing is kept, pi begins with the entry of the compaction itself.
      const firstKeptEntryId = openPrompt(event.branchEntries);
      const details = { compactor: "record", tokensAfter: answer.tokens_after };
      return { compaction: { summary: answer.record, firstKeptEntryId, tokensBefore, details } };
    }
    if (isText(answer.instructions)) return await steered(answer.instructions, event, ctx);
  });

  pi.on("session_compact", async (event, ctx) => {
    const { summary, details } = event.compactionEntry;
    const told = await ask("post-compact", { ...call(event, ctx), compact_summary: summary });
    if (details?.compactor === "record") return;
    if (isText(told.systemMessage)) ctx.ui.notify(told.systemMessage, "info");
    const brief = await ask("session-start", { ...call(event, ctx), source: "compact" });
    const content = brief.hookSpecificOutput?.additionalContext;
    if (isText(content)) pi.sendMessage({ customType: "compactor", content, display: false });
  });
}

/** What every call tells: which session it is, and where pi writes it down. */
function call(event, ctx) {
  return {
    session_id: ctx.sessionManager.getSessionId(),
    transcript_path: ctx.sessionManager.getSessionFile() ?? "",
    cwd: ctx.cwd,
    model: ctx.model?.id,
    trigger: event.reason === "manual" ? "manual" : "auto",
    custom_instructions: event.customInstructions,
  };
}

/** The first of the prompts that nobody has answered yet, which are not in the record; nothing when there are none. */
function openPrompt(entries) {
  const omitted = new Set(entries.filter((entry) => entry.replacement === null).map((entry) => entry.targetId));
  let first;
  for (const { type, id, message } of entries.toReversed()) {
    if (type === "compaction") break;
    if (type !== "message" || message.role === "system" || omitted.has(id) || isEmpty(message)) continue;
    if (message.role !== "user") break;
    first = id;
  }
  return first;
}

/** An answer that failed or was stopped before it said anything. */
function isEmpty({ role, content }) {
  return role === "assistant" && !content.some((block) => block.type !== "text" || isText(block.text));
}

/** A summary by pi's own model of what pi would summarise, but asked for in our words. */
async function steered(instructions, event, ctx) {
  const { convertToLlm, serializeConversation } = await import("@earendil-works/pi-coding-agent");
  const { messagesToSummarize, turnPrefixMessages, previousSummary, firstKeptEntryId, tokensBefore } = event.preparation;
  const conversation = serializeConversation(convertToLlm([...messagesToSummarize, ...turnPrefixMessages]));
  const before = previousSummary ? `<previous-summary>\n${previousSummary}\n</previous-summary>\n\n` : "";
  const text = `${before}<conversation>\n${conversation}\n</conversation>\n\n${instructions}`;
  const messages = [{ role: "user", content: [{ type: "text", text }], timestamp: Date.now() }];
  try {
    const reply = await ctx.modelRegistry.complete(ctx.model, { messages }, { signal: event.signal, cacheRetention: "none" });
    const summary = reply.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");
    if (reply.stopReason !== "stop" || !isText(summary)) return;
    return { compaction: { summary, firstKeptEntryId, tokensBefore, usage: reply.usage, details: { compactor: "steered" } } };
  } catch {
    return; // pi asks in its own words
  }
}
