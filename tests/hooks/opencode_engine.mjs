// A stand-in for the part of OpenCode that compacts, after its code of 1.18.33: it loads the plugin, compacts the
// messages before the tail, and prints what the model was asked, the summary that is kept, and what the plugin set.
//
//   node opencode_engine.mjs PLUGIN '{"messages": […], "tail": 2, "cwd": …, "reply": "done"}'

import { pathToFileURL } from 'node:url'

const [path, given] = process.argv.slice(2)
const { messages, tail, cwd, reply } = JSON.parse(given)
const summary = { info: { id: 'summary', role: 'assistant', summary: true }, parts: [] }
const toasts = []
const client = {
  session: {
    messages: async () => ({ data: messages }),
    message: async ({ path: { messageID } }) => ({ data: messageID === 'summary' ? summary : undefined }),
  },
  tui: { showToast: async ({ body }) => toasts.push(body) },
}
const hooks = {}
for (const plugin of Object.values(await import(pathToFileURL(path)))) Object.assign(hooks, await plugin({ client, directory: cwd }))
const trigger = async (name, input, output) => {
  await hooks[name]?.(input, output)
  return output
}
const config = { mcp: { other: { type: 'remote' } } }
await hooks.config(config)

const sessionID = 'session-1'
const compacting = await trigger('experimental.session.compacting', { sessionID }, { context: [], prompt: undefined })
const head = structuredClone(messages.slice(0, tail))
await trigger('experimental.chat.messages.transform', {}, { messages: head })
const conversation = head.map(message => message.parts.map(part => part.text).join('\n')).join('\n\n')
const own = ['OPENCODE ASKS', conversation, ...compacting.context].join('\n\n')
const request = compacting.prompt ? [compacting.prompt, 'The history:', conversation].join('\n\n') : own
// A model that answers with nothing completes no text.
const done = input => (reply === '' ? { text: '' } : trigger('experimental.text.complete', { sessionID, partID: 'p', ...input }, { text: reply }))
const kept = (await done({ messageID: 'summary' })).text
const said = (await done({ messageID: 'later' })).text
const before = JSON.stringify(messages)
await trigger('experimental.chat.messages.transform', {}, { messages })
await hooks.event({ event: { type: 'session.compacted', properties: { sessionID } } })
const isUntouched = JSON.stringify(messages) === before
summary.info = { ...summary.info, sessionID, finish: 'stop' }
summary.parts = [{ type: 'text', text: kept }]
await trigger('experimental.chat.messages.transform', {}, { messages: [summary, { info: { sessionID }, parts: [] }] })
const sees = summary.parts.map(part => part.text).join('')
console.log(JSON.stringify({ request, kept, said, sees, config, toasts, isUntouched }))
