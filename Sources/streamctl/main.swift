import Glibc

do throws(Stop) {
  try Program.run(Array(CommandLine.arguments.dropFirst()))
} catch {
  if let message = error.message {
    let line = Array("streamctl: \(message)\n".utf8)
    _ = write(STDERR_FILENO, line, line.count)
  }
  exit(error.exitCode)
}
