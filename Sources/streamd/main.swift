import CLinux
import Glibc
import StreamProtocol
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

func complain(_ line: String) {
  let text = "streamd: \(line.escapedForTerminal)\n"
  unsafe write(STDERR_FILENO, text, text.utf8.count)
}

/// Prints the configuration's errors, if any, and then exits with EX_CONFIG. A program that cannot be run is an error,
/// too.
func check(_ path: String) -> ConfigurationSource {
  do throws(ConfigurationErrors) {
    return try ConfigurationSource.load(path: path, checksPrograms: true, isTrial: true)
  } catch {
    error.sentences.forEach(complain)
    exit(EX_CONFIG)
  }
}

/// Exits because there is no valid configuration.
func endWithoutConfiguration(
  _ path: String, _ summary: String, _ passed: PassedDescriptors, _ journal: Journal, _ manager: ServiceManager
) -> Never {
  manager.notify(.status(summary))
  refuseClients(from: passed.listeners, of: path, summary)
  journal.flush(within: .seconds(1))
  manager.flush(within: .seconds(1))
  // The service manager releases its stored descriptors once the service has failed permanently. If there are any, the
  // manager must retry until the file is corrected.
  exit(passed.stored.isEmpty ? EX_CONFIG : EX_TEMPFAIL)
}

func serve(_ path: String) {
  signal(SIGPIPE, SIG_IGN)
  signal(SIGXFSZ, SIG_IGN)  // exceeding a file size limit becomes an error like that of a full disk
  signal(SIGCHLD, SIG_DFL)  // an inherited SIG_IGN would hide how a program ended
  // The allocator reuses freed blocks up to the first size, which has room for one message of a fleet. A block that
  // comes from the system costs a page fault for every 4 KiB. `Daemon` returns blocks that stay free. By default the
  // allocator raises both sizes with each large block that is freed.
  mallopt(M_MMAP_THRESHOLD, 4 << 20)
  mallopt(M_TRIM_THRESHOLD, 8 << 20)
  let journal = Journal()
  let manager = ServiceManager()
  var passed = manager.takeDescriptors()
  let stored = StoredConfiguration(takenFrom: &passed.stored, journal)
  let source: ConfigurationSource
  var refusal: String?
  let time = EventLoop.monotonicNow()
  do throws(ConfigurationErrors) {
    source = try ConfigurationSource.load(path: path)
  } catch {
    for sentence in error.sentences { journal.write(.configurationRefused, .error, sentence) }
    let summary = ConfigurationErrors.summary(of: error.sentences)
    guard let last = stored.load(as: path) else { endWithoutConfiguration(path, summary, passed, journal, manager) }
    source = last
    refusal = summary
    journal.write(
      .formerConfigurationServed, .warning,
      "serving the previous configuration: \(summary)")
  }
  let configuration = source.configuration
  journal.level = configuration.log.level
  do {
    let daemon = try Daemon(
      source, from: path, ConfigurationReport(text: source.text, error: refusal, readAt: time / 1000), passed: passed,
      stored: stored, journal: journal, manager: manager)
    try daemon.run()
    // The thread for NATS may still use OpenSSL, which a normal exit would free. Nothing is left to be done at exit.
    if configuration.cluster != nil { _exit(0) }
  } catch {
    journal.write(nil, .critical, "streamd cannot start: \(error)")
    journal.flush(within: .seconds(1))
    exit(
      error is SystemError || error is ListeningSockets.Refusal
        ? EX_OSERR : error is LogStore.FolderInUse ? EX_TEMPFAIL : EX_SOFTWARE)
  }
}

// Dispatch sets the priority of each thread that it creates, and logs each failure to the system's log.
unsafe setenv("LIBDISPATCH_LOG", "NO", 0)

HelperProcess.runIfAsked()

do throws(DaemonArguments.UsageError) {
  switch try DaemonArguments.parse(Array(CommandLine.arguments.dropFirst())) {
  case .help: print(DaemonArguments.usage)
  case .version: print("streamd \(Version.description)")
  case .check(let path):
    let source = check(path)
    let (path, configuration) = (source.files[0].path, source.configuration)
    let remarks: [String?] =
      configuration.templates.flatMap(\.remarks) + [
        CredentialFolder.remark(on: source.unreadCredentials),
        LogStore.remark(on: configuration), MemoryBudget.remark(on: configuration),
        JQTransform.remark(on: configuration),
        HomeDirectories.remark(on: configuration),
      ]
    for remark in remarks.compactMap(\.self) { print("\(path): \(remark)".escapedForTerminal) }
    print("\(path): \(configuration.counts), no errors".escapedForTerminal)
  case .serve(let path): serve(path)
  }
} catch {
  complain(error.sentence)
  exit(EX_USAGE)
}
