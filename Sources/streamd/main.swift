import CLinux
import Glibc
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

func complain(_ line: String) {
  let text = "streamd: \(line.escapedForTerminal)\n"
  write(STDERR_FILENO, text, text.utf8.count)
}

/// Prints what is wrong with the configuration, if anything is, and ends with EX_CONFIG then. Programs that cannot be run are
/// mistakes, too.
func check(_ path: String) -> Configuration {
  do throws(ConfigurationErrors) {
    return try ConfigurationSource.load(path: path, checksPrograms: true).configuration
  } catch {
    error.sentences.forEach(complain)
    exit(EX_CONFIG)
  }
}

/// Ends the process: there is nothing that it could serve.
func endWithoutConfiguration(
  _ summary: String, _ passed: PassedDescriptors, _ journal: Journal, _ manager: ServiceManager
) -> Never {
  manager.notify(.status(summary))
  turnClientsAway(from: passed.listeners)
  journal.flush(within: .seconds(1))
  manager.flush(within: .seconds(1))
  // The service manager lets go of what it keeps once the service has failed for good: where there is something, it is to
  // try again until the file is mended.
  exit(passed.stored.isEmpty ? EX_CONFIG : EX_TEMPFAIL)
}

func serve(_ path: String) {
  signal(SIGPIPE, SIG_IGN)
  signal(SIGXFSZ, SIG_IGN)  // a file over a limit of the process is an error like that of a full disk
  signal(SIGCHLD, SIG_DFL)  // ignored, as it may have been left to us, it would keep how a program ended from us
  // Or else the allocator raises it with each large block that is freed, and keeps the next ones of that size for good.
  mallopt(M_MMAP_THRESHOLD, 256 << 10)
  let journal = Journal()
  let manager = ServiceManager()
  var passed = manager.takeDescriptors()
  let stored = StoredConfiguration(takenFrom: &passed.stored, journal)
  let source: ConfigurationSource
  var remark: String?
  do throws(ConfigurationErrors) {
    source = try ConfigurationSource.load(path: path)
  } catch {
    for sentence in error.sentences { journal.write(.configurationRefused, .error, sentence) }
    let summary = ConfigurationErrors.summary(of: error.sentences)
    guard let last = stored.load(as: path) else { endWithoutConfiguration(summary, passed, journal, manager) }
    source = last
    remark = "configuration refused: \(summary)"
    journal.write(
      .formerConfigurationServed, .warning,
      "serving the previous configuration: \(path) has errors")
  }
  let configuration = source.configuration
  journal.level = Journal.Priority(rawValue: UInt8(configuration.log.level.priority)) ?? .info
  do {
    let daemon = try Daemon(
      source, from: path, remark: remark, passed: passed, stored: stored, journal: journal, manager: manager)
    try daemon.run()
  } catch {
    journal.write(nil, .critical, "streamd cannot start: \(error)")
    journal.flush(within: .seconds(1))
    exit(error is SystemError ? EX_OSERR : EX_SOFTWARE)
  }
}

// Dispatch sets the priority of each thread that it makes, and where it may not, says so in the system's log each time.
setenv("LIBDISPATCH_LOG", "NO", 0)

HelperProcess.runIfAsked()

do throws(Arguments.UsageError) {
  switch try Arguments.parse(Array(CommandLine.arguments.dropFirst())) {
  case .help: print(Arguments.usage)
  case .version: print("streamd \(Version.current)")
  case .check(let path):
    let configuration = check(path)
    let remarks = [LogStore.remark(on: configuration), MemoryBudget.remark(on: configuration)]
    for remark in remarks.compactMap(\.self) { print("\(path): \(remark)") }
    print("\(path): \(counted(configuration.streams.count, "stream")), no errors")
  case .serve(let path): serve(path)
  }
} catch {
  complain(error.sentence)
  exit(EX_USAGE)
}
