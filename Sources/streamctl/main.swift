import Glibc

do throws(Stop) {
  try Program.run(Array(CommandLine.arguments.dropFirst()))
} catch {
  if let message = error.message { Stop.say(message) }
  exit(error.exitCode)
}
