// A stand-in for the part of pi that calls an extension, after its declarations of 1.5.0: it loads the extension, raises
// the events that it is given, and prints what was answered, and what the extension did.
//
//   node pi_engine.mjs EXTENSION '{"events": [{"type": …}], "entries": […], "leaf": …, "cwd": …, "reply": …}'

import { pathToFileURL } from 'node:url'

const [path, given] = process.argv.slice(2)
const { events, entries, leaf, cwd, reply } = JSON.parse(given)
const handlers = {}
const [servers, sent, notified, requests] = [{}, [], [], []]
const pi = {
  on: (name, handler) => (handlers[name] = handler),
  registerMcpServer: (name, config) => (servers[name] = config),
  sendMessage: message => sent.push(message),
}
const ctx = {
  cwd,
  model: { id: 'model-1' },
  sessionManager: {
    getEntries: () => entries,
    getLeafId: () => leaf ?? entries.at(-1)?.id,
    getSessionId: () => 'session-1',
    getSessionFile: () => '/logs/session-1.jsonl',
  },
  modelRegistry: {
    complete: async (model, context) => {
      requests.push(context.messages[0].content[0].text)
      if (!reply) throw new Error('the provider is not there')
      return reply
    },
  },
  ui: { notify: (message, kind) => notified.push([message, kind]) },
}
const { default: extension } = await import(pathToFileURL(path))
extension(pi)
const answers = []
for (const event of events) {
  const signal = new AbortController().signal
  answers.push((await handlers[event.type]({ branchEntries: entries, signal, ...event }, ctx)) ?? null)
}
console.log(JSON.stringify({ answers, servers, sent, notified, requests }))
