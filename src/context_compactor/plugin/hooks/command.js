// How the mod starts `compactor`. An install writes the path of its own command here.
export const COMMAND = ['sh', '-c', 'PATH="$PATH:$HOME/.local/state/compactor/bin" exec compactor "$@"', 'compactor']
