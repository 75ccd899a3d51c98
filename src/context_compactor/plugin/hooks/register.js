// Context Compactor inside Claude Code: our record in the place of its summary, long results shortened before the model
// reads them, and commands to look at a compaction and to take it back. Whatever goes wrong here, Claude Code goes on
// as if this file were not there.

import { COMMAND } from './command.js'

const COMPACT_MS = 20000
const OTHER_MS = 10000
const ERROR_LENGTH = 400
const OPENING = '[Context record.'
const UNDO = 'undo'
// Shorter texts are left alone without asking: a result of a tool, and the report of a sub-agent in the background.
const LONG_RESULT = 16000
const LONG_REPORT = 2000
const REPORT = /(<result>)([\s\S]*)(<\/result>)/
const REPORTED_CALL = /<tool-use-id>([^<]*)<\/tool-use-id>/
const STANDS_FOR = /stands for ([\d,]+) earlier messages \(([\d,]+) tokens/

export function register(on) {
  let compaction = ''

  // Nobody waits for it: the status line and `compactor doctor` ask whether this file was loaded.
  on('session.start', async ($, e, next) => {
    ask($, 'loaded', OTHER_MS, {}).then(answer => (compaction = answer.compaction ?? ''))
    return next(e)
  })

  on('session.compact', async ($, e, next) => {
    if (e.trigger === 'precompute') {
      return compaction === 'ours' ? { skip: 'Context Compactor writes the record when it is needed' } : next(e)
    }
    const isUndo = e.instructions?.trim().toLowerCase() === UNDO
    const open = openPrompts(e.messages)
    const answer = await ask($, isUndo ? 'undo' : 'compact', COMPACT_MS, {
      agent_id: e.agentId,
      trigger: e.trigger === 'auto' ? 'auto' : 'manual',
      open_prompts: open.map(row => row.text),
      custom_instructions: isUndo ? undefined : e.instructions,
    })
    const isAnswered = isText(answer.record) || isText(answer.instructions) || isText(answer.pass) || hasRows(answer)
    const error = answer.error ?? (isAnswered ? '' : 'compactor answered with neither a record nor a reason')
    // Nobody waits for this either: the reason is for the log of hooks.
    if (error) ask($, 'failed', OTHER_MS, { agent_id: e.agentId, trigger: e.trigger, reason: error })
    if (isUndo) return hasRows(answer) ? { messages: answer.rows } : { skip: answer.pass ?? error }
    if (isText(answer.instructions)) return next({ ...e, instructions: answer.instructions })
    if (!isText(answer.record)) return next(e)
    return { messages: [{ role: 'user', text: answer.record, toolUses: [] }, ...open] }
  })

  on('session.append', { door: 'tool-result' }, async ($, e, next) => {
    const content = await each(e.message.content, block => shorterResult($, e, block))
    return next({ ...e, message: { ...e.message, content } })
  })

  on('session.append', { origin: { kind: 'task-notification' } }, async ($, e, next) => {
    const content = await each(e.message.content, block => shorterReport($, e, block))
    return next({ ...e, message: { ...e.message, content } })
  })

  on('ui.render', { component: 'UserMessage' }, async ($, e, next) => {
    const { text, isExpanded } = e.props
    if (isExpanded || !text.includes(OPENING)) return next(e)
    return next({ ...e, props: { ...e.props, text: foldedLine(text) } })
  })

  on('command.run', { command: 'compactor:plan' }, async ($, e, next) => {
    const answer = await ask($, 'plan', OTHER_MS, { trigger: 'manual', custom_instructions: e.args || undefined })
    return isText(answer.text) ? { text: answer.text } : next(e)
  })

  // What a plugin starts itself does not reach its own hooks, so the user has to send it.
  on('command.run', { command: 'compactor:undo' }, async $ => {
    const { isFilled } = await $.prompt.fill({ text: `/compact ${UNDO}` })
    return { text: isFilled ? 'Press Enter to take the last compaction back.' : `Type: /compact ${UNDO}` }
  })
}

// What `compactor hook` answers; an error in words when it did not.
async function ask($, event, timeoutMs, more) {
  try {
    const { transcriptPath } = await $.session.info()
    const call = { session_id: await $.session.id(), transcript_path: transcriptPath, cwd: await $.session.cwd(), ...more }
    const argv = [...COMMAND, 'hook', event, '--agent', 'claude-code']
    const { exitCode, stdout, stderr } = await $.process.run(argv, { stdin: JSON.stringify(call), timeoutMs })
    if (exitCode !== 0) return { error: `exit code ${exitCode}: ${stderr.slice(-ERROR_LENGTH)}` }
    return stdout.trim() ? Object(JSON.parse(stdout)) : {}
  } catch (error) {
    return { error: String(error).slice(0, ERROR_LENGTH) }
  }
}

// What the user has asked and nobody has answered: these rows stay as they are, behind the record.
function openPrompts(messages) {
  const answered = messages.findLastIndex(row => row.role === 'assistant' || row.toolResults?.length > 0)
  return messages.slice(answered + 1).filter(row => row.role === 'user' && row.handle)
}

async function each(items, change) {
  const changed = []
  for (const item of items) changed.push(await change(item))
  return changed
}

async function shorterResult($, e, block) {
  const text = block.type === 'tool_result' ? textOf(block.content) : ''
  if (text.length <= LONG_RESULT) return block
  const shorter = await shorten($, e.agentId, e.origin.tool, block.tool_use_id, text)
  return shorter ? { ...block, content: shorter } : block
}

async function shorterReport($, e, block) {
  const report = block.type === 'text' ? REPORT.exec(block.text)?.[2] ?? '' : ''
  if (report.length <= LONG_REPORT) return block
  const call = REPORTED_CALL.exec(block.text)?.[1] ?? ''
  const shorter = await shorten($, e.agentId, 'Agent', `${call}/report`, report)
  return shorter ? { ...block, text: block.text.replace(REPORT, (_, begin, __, end) => begin + shorter + end) } : block
}

// A shorter text with a reference to the whole of it; nothing when the text stays as it is.
async function shorten($, agentId, tool, callId, text) {
  const call = { agent_id: agentId, tool_name: tool, tool_use_id: callId, tool_response: text }
  const answer = await ask($, 'shorten', OTHER_MS, call)
  return isText(answer.text) && answer.text.length < text.length ? answer.text : ''
}

// Only text: a result with images stays as it is.
function textOf(content) {
  if (typeof content === 'string') return content
  const isAllText = Array.isArray(content) && content.every(block => block.type === 'text')
  return isAllText ? content.map(block => block.text).join('\n') : ''
}

function foldedLine(text) {
  const found = STANDS_FOR.exec(text)
  const size = found ? ` of ${found[1]} messages (${found[2]} tokens)` : ''
  return `Context record${size}. /compactor:undo takes it back.`
}

function isText(value) {
  return typeof value === 'string' && value.trim() !== ''
}

function hasRows(answer) {
  return Array.isArray(answer.rows) && answer.rows.length > 0
}
