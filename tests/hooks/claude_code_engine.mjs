// A stand-in for the part of Claude Code that calls a mod, after its declarations of 2.1.326: it registers the hooks,
// raises one event, and prints what the hook answered and what it ran.
//
//   node claude_code_engine.mjs FOLDER '{"event": …, "e": …, "run": {"exitCode": 0, "stdout": …} | {"error": …}}'
//
// With `started` the session has started before, and the plugin was told this.

import { pathToFileURL } from 'node:url'

const [folder, given] = process.argv.slice(2)
const { event, e, run, started } = JSON.parse(given)
const { register } = await import(pathToFileURL(`${folder}/hooks/register.js`))

const hooks = []
register((name, matcher, hook) => {
  hooks.push(typeof matcher === 'function' ? [name, {}, matcher] : [name, matcher, hook])
})

const ran = []
const $ = {
  session: {
    id: async () => 'session-1',
    cwd: async () => '/project',
    info: async () => ({ transcriptPath: '/logs/session-1.jsonl', platform: 'linux', isHosted: false }),
  },
  process: {
    run: async (argv, init) => {
      ran.push({ argv, call: JSON.parse(init.stdin), timeoutMs: init.timeoutMs })
      if (started && argv.includes('loaded')) return { exitCode: 0, stdout: JSON.stringify(started) }
      if (run.error) throw new Error(run.error)
      return { stderr: '', isStdoutTruncated: false, isStderrTruncated: false, ...run }
    },
  },
  prompt: { fill: async ({ text }) => ({ isFilled: run.isFilled ?? true, text }) },
}

const matches = (wanted, value) =>
  typeof wanted === 'object' ? Object.entries(wanted).every(([key, part]) => matches(part, value?.[key])) : wanted === value
if (started) {
  for (const [name, , hook] of hooks) if (name === 'session.start') await hook($, {}, async () => ({}))
  await new Promise(resolve => setTimeout(resolve))
  ran.length = 0
}
const found = hooks.filter(([name, matcher]) => name === event && matches(matcher, e))
const passed = []
const next = async value => {
  passed.push(value)
  return { next: true }
}
let answer = { next: 'no hook' }
for (const [, , hook] of found) answer = await hook($, e, next)
console.log(JSON.stringify({ hooks: found.length, answer, passed, ran }))
