import Glibc
import StreamRuntime

/// A child process, which its thread keeps until it is over.
protocol KeptProcess: AnyObject {
  /// - Parameter grace: how long it may take before it is killed; nil: as usual.
  func end(within grace: Duration?)
}

/// A subscription whose server may have asked it to wait, with Retry-After.
protocol RestingSource: AnyObject {
  /// It need not wait any longer.
  func endRest()
}

/// The thread on which every upstream's work is done, so that none of it can delay a client.
public final class SourceThread: @unchecked Sendable {  // but for `loop`, touched on the loop's thread only: checked
  /// Whose turns upstream work takes. Timers and descriptors of other sources may live on it, too.
  public let loop: EventLoop
  private var client: HTTPClient?
  private var programs: [ObjectIdentifier: any KeptProcess] = [:]
  /// Sources that wait because a server has asked them to.
  private var resting: [ObjectIdentifier: any RestingSource] = [:]
  /// How often all such waits were ended.
  private(set) var endedRests = 0
  private var completed: @Sendable () -> Void = {}
  /// Nothing is to begin any more.
  private(set) var isStopped = false
  private var transfersPerHost: Int
  /// nil: where programs may outlive a kill of this process.
  let programGuard: ProgramGuard?

  /// - Parameters:
  ///   - transfersPerHost: how many requests all sources together have under way to one host, that is to one host and
  ///     port, or one Unix socket. Others wait in line. At least 1.
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first of all, such as this one: run once more, it ends
  ///     the programs that are sources when this process was killed. nil: they outlive that.
  /// - Throws: what the loop could not get from the system.
  public init(transfersPerHost: Int = 4, helper executable: String? = nil) throws(SystemError) {
    precondition(transfersPerHost > 0, "a host with \(transfersPerHost) transfers is never reached")
    self.transfersPerHost = transfersPerHost
    programGuard = executable.map { ProgramGuard(executable: $0) }
    loop = try EventLoop(name: "sources")
    loop.execute {
      // TLS libraries write to sockets without MSG_NOSIGNAL. Threads made on this one, for names, inherit it.
      var signals = sigset_t()
      sigemptyset(&signals)
      sigaddset(&signals, SIGPIPE)
      pthread_sigmask(SIG_BLOCK, &signals, nil)
    }
  }

  /// Begins to work; what was subscribed to before starts now.
  /// - Throws: `pthread_create`, when the process may have no more threads.
  public func start() throws(SystemError) {
    try loop.start()
  }

  /// Another number of transfers at a time to one host, at least 1. Those that are over it go on to their end.
  public func setTransfersPerHost(_ count: Int) {
    precondition(count > 0, "a host with \(count) transfers is never reached")
    loop.execute { [self] in
      transfersPerHost = count
      client?.setTransfersPerHost(count)
    }
  }

  /// Forgets what servers have asked for with Retry-After: hosts and sources that wait for that are asked at once. For an
  /// operator that knows better, such as one that has mended the upstream.
  public func endRests() {
    loop.execute { [self] in
      endedRests += 1
      client?.endRests()
      let sources = resting.values
      resting = [:]
      for source in sources { source.endRest() }
    }
  }

  /// Ends every transfer and every program, and then the thread. For good: what is asked of it from now on does not
  /// happen.
  ///
  /// - Parameters:
  ///   - grace: how long a program may take before it is killed.
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

  /// The source waits, or not any more.
  func note(_ source: any RestingSource, rests: Bool) {
    loop.assertOnLoop()
    resting[ObjectIdentifier(source)] = rests ? source : nil
  }

  /// Keeps a program until `forget`, whoever else has let go of it.
  func keep(_ program: any KeptProcess) {
    loop.assertOnLoop()
    programs[ObjectIdentifier(program)] = program
  }

  /// The program is over.
  func forget(_ program: any KeptProcess) {
    loop.assertOnLoop()
    programs[ObjectIdentifier(program)] = nil
    leaveWhenAlone()
  }

  /// Made at its first use: a daemon without HTTP sources does not pay for libcurl and TLS. nil once stopped, or without
  /// memory.
  var httpClient: HTTPClient? {
    loop.assertOnLoop()
    if client == nil, !isStopped { client = HTTPClient(on: loop, transfersPerHost: transfersPerHost) }
    return client
  }
}
