import Glibc
import StreamRuntime

/// A child process that its thread retains until it has ended.
protocol KeptProcess: AnyObject {
  /// - Parameter grace: the time until it is killed; nil: its default.
  func end(within grace: Duration?)
}

/// A subscription whose server may have sent Retry-After.
protocol RestingSource: AnyObject {
  /// Ends its wait.
  func endRest()
}

/// The thread that runs all upstream work, so that this work cannot delay a client.
public final class SourceThread: @unchecked Sendable {  // all but `loop` is confined to its thread: checked
  /// The loop that runs upstream work. Timers and descriptors of other sources may use it, too.
  public let loop: EventLoop
  private var client: HTTPClient?
  private var programs: [ObjectIdentifier: any KeptProcess] = [:]
  /// The processes of jq programs that streams share.
  var jqProcesses: [JQProcess.Settings: JQProcess] = [:]
  /// Sources that wait because of Retry-After.
  private var resting: [ObjectIdentifier: any RestingSource] = [:]
  /// The tokens of sources, up to a number above which those are dropped that were not used lately.
  private var tokenSources: [TokenSource] = []
  private static let tokenLimit = 1024
  /// How often all such waits were ended.
  private(set) var endedRests = 0
  private var completed: @Sendable () -> Void = {}
  /// Whether the thread has stopped: nothing begins any more.
  private(set) var isStopped = false
  private var transfersPerHost: Int
  /// The pauses that upstreams have asked for.
  private(set) var pauses = PauseBook()
  /// nil: programs may outlive a kill of this process.
  let programGuard: ProgramGuard?
  /// For the standard error of all programs.
  let errorShare = ThreadShare()

  /// - Parameters:
  ///   - transfersPerHost: concurrent requests of all sources to one host and port, or one Unix socket. Others wait in
  ///     a queue. At least 1.
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first, such as this one. It is run again as a
  ///     guard that ends the source programs when this process is killed. nil: they outlive a kill.
  /// - Throws: the system call by which the loop failed.
  public init(transfersPerHost: Int = 4, helper executable: String? = nil) throws(SystemError) {
    precondition(transfersPerHost > 0, "transfers per host must be at least 1, not \(transfersPerHost)")
    self.transfersPerHost = transfersPerHost
    programGuard = executable.map { ProgramGuard(executable: $0) }
    loop = try EventLoop(name: "sources")
    loop.execute {
      // TLS libraries write to sockets without MSG_NOSIGNAL. Threads created by this one, such as for name lookups,
      // inherit the mask.
      var signals = sigset_t()
      unsafe sigemptyset(&signals)
      unsafe sigaddset(&signals, SIGPIPE)
      unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
    }
  }

  /// Starts the thread; earlier subscriptions begin now.
  /// - Throws: `pthread_create`, when the process may have no more threads.
  public func start() throws(SystemError) {
    try loop.start()
  }

  /// Continues the pauses of the former process. Called before there are sources.
  public func keepPauses(in store: PauseStore) {
    loop.execute { [self] in pauses = PauseBook(store) }
  }

  /// Sets the maximum number of transfers per host, at least 1. Transfers above it continue to their end.
  public func setTransfersPerHost(_ count: Int) {
    precondition(count > 0, "transfers per host must be at least 1, not \(count)")
    loop.execute { [self] in
      transfersPerHost = count
      client?.setTransfersPerHost(count)
    }
  }

  /// Ends all Retry-After waits: hosts and sources that wait are contacted at once. For use after the upstream was
  /// repaired.
  public func endRests() {
    loop.execute { [self] in
      endedRests += 1
      pauses.clear()
      client?.endRests()
      let sources = resting.values
      resting = [:]
      for source in sources { source.endRest() }
    }
  }

  /// Ends every transfer and every program, and then the thread, permanently. Later requests are ignored.
  ///
  /// - Parameters:
  ///   - grace: the time until a program is killed.
  ///   - completed: called once, on the thread, when no program runs any more; never for a thread that was not started.
  public func stop(within grace: Duration = .seconds(2), completed: @escaping @Sendable () -> Void = {}) {
    loop.execute { [self] in
      isStopped = true
      resting = [:]
      self.completed = completed
      client?.shutDown()
      client = nil
      for program in programs.values { program.end(within: grace) }
      leaveWhenAlone()
    }
  }

  private func leaveWhenAlone() {
    guard isStopped, programs.isEmpty else { return }
    loop.stop()
    completed()
  }

  // MARK: On the loop

  /// Records whether the source waits because of Retry-After.
  func note(_ source: any RestingSource, rests: Bool) {
    loop.assertOnLoop()
    resting[ObjectIdentifier(source)] = rests ? source : nil
  }

  /// Retains a program until `forget`, even without other references.
  func keep(_ program: any KeptProcess) {
    loop.assertOnLoop()
    programs[ObjectIdentifier(program)] = program
  }

  /// The program has ended.
  func forget(_ program: any KeptProcess) {
    loop.assertOnLoop()
    programs[ObjectIdentifier(program)] = nil
    leaveWhenAlone()
  }

  /// The token of all sources with that definition.
  func tokenSource(_ definition: OAuth2, _ store: TokenStore?) -> TokenSource {
    loop.assertOnLoop()
    let known = tokenSources.firstIndex { $0.definition == definition }
    let source = known.map { tokenSources.remove(at: $0) } ?? TokenSource(definition, on: self, store)
    if tokenSources.count == Self.tokenLimit { tokenSources.removeFirst() }
    tokenSources.append(source)
    return source
  }

  /// Created at its first use: a daemon without HTTP sources does not load libcurl and TLS. nil once stopped, or when
  /// out of memory.
  var httpClient: HTTPClient? {
    loop.assertOnLoop()
    if client == nil, !isStopped { client = HTTPClient(on: loop, transfersPerHost: transfersPerHost, pauses) }
    return client
  }
}
