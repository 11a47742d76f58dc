import EventLoop
import Glibc
import StreamServer
import StreamSources
import Systemd

func complain(_ line: String) {
  let text = "streamd: \(line)\n"
  write(STDERR_FILENO, text, text.utf8.count)
}

/// Says what is wrong with the configuration and ends with EX_CONFIG.
func load(_ path: String, _ say: ([String]) -> Void) -> Configuration {
  do throws(ConfigurationMistakes) {
    return try Configuration.load(path: path)
  } catch {
    say(error.sentences)
    exit(EX_CONFIG)
  }
}

func serve(_ path: String) {
  signal(SIGPIPE, SIG_IGN)
  signal(SIGCHLD, SIG_DFL)  // ignored, as it may have been left to us, it would keep how a program ended from us
  let journal = Journal()
  let manager = ServiceManager()
  let configuration = load(path) { sentences in
    for sentence in sentences { journal.write(.configurationRefused, .error, sentence) }
    manager.notify(.status(sentences.first ?? ""))
    turnClientsAway(manager)
    journal.flush(within: .seconds(1))
    manager.flush(within: .seconds(1))
  }
  journal.level = Journal.Priority(rawValue: UInt8(configuration.log.level.priority)) ?? .info
  do {
    try Daemon(configuration, from: path, journal: journal, manager: manager).run()
  } catch {
    journal.write(nil, .critical, "streamd cannot start: \(error)")
    journal.flush(within: .seconds(1))
    exit(error is SystemError ? EX_OSERR : EX_SOFTWARE)
  }
}

// Dispatch sets the priority of each thread that it makes, and where it may not, says so in the system's log each time.
setenv("LIBDISPATCH_LOG", "NO", 0)

if CommandLine.arguments.dropFirst().first == JQWorker.argument { JQWorker.run() }

do throws(Arguments.Mistake) {
  switch try Arguments.parse(Array(CommandLine.arguments.dropFirst())) {
  case .help: print(Arguments.usage)
  case .version: print("streamd \(Version.current)")
  case .check(let path):
    let configuration = load(path) { $0.forEach(complain) }
    if let remark = KeptLogs.remark(on: configuration) { print("\(path): \(remark)") }
    print("\(path): \(counted(configuration.streams.count, "stream")), no mistakes")
  case .serve(let path): serve(path)
  }
} catch {
  complain(error.sentence)
  exit(EX_USAGE)
}
