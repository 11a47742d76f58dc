import Glibc

// Benchmarks of the built daemon, over real sockets, with their own load generator. Started by `deploy/bench`.

signal(SIGPIPE, SIG_IGN)
let words = Array(CommandLine.arguments.dropFirst())
if words == ["--help"] {
  print(Options.usage)
  exit(EX_OK)
}
raiseDescriptorLimit()
do {
  if words.count == 2, words[0] == BareServer.argument { try BareServer.run(words[1]) }
  if words.count == 2, words[0] == BareRelay.argument { try BareRelay.run(words[1]) }
  if words.count == 3, words[0] == HostileClients.argument, let seed = UInt64(words[2]) {
    try HostileClients.run(words[1], seed: seed)
  }
  let options = try Options(words)
  print(HostInfo.description)
  if options.isForReadme {
    try printReadme(options)
    exit(EX_OK)
  }
  if let path = options.picture {
    try draw(options, to: path)
    exit(EX_OK)
  }
  for row in Row.all where options.rows.isEmpty ? !row.isOnlyOnRequest : options.rows.contains(row.name) {
    try row.measure(options)
  }
} catch let mistake as Options.UsageError {
  complain("\(mistake.sentence)\n\(Options.usage)")
  exit(EX_USAGE)
} catch {
  complain("\(error)")
  exit(EX_SOFTWARE)
}

func complain(_ line: String) {
  let text = "streambench: \(line)\n"
  unsafe write(STDERR_FILENO, text, text.utf8.count)
}

/// Raises the process's descriptor limit to the system's maximum; the servers inherit it.
func raiseDescriptorLimit() {
  var limit = rlimit()
  let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
  unsafe getrlimit(resource, &limit)
  limit.rlim_cur = limit.rlim_max
  unsafe setrlimit(resource, &limit)
}
