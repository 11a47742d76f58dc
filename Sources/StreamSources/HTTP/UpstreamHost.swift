import StreamRuntime

/// One upstream host: the budget shared by all its sources, on the loop's clock. Confined to the loop.
final class UpstreamHost {
  /// The key of a shared budget.
  enum Name: Hashable {
    /// Host and port of a URL. Not its scheme: one server responds to both.
    case network(host: String, port: String)
    /// The path of a Unix socket, whatever host the URL names.
    case unixSocket(String)

    /// `example.org`, `example.org:8080`, `/run/x.sock`.
    var description: String {
      switch self {
      case .network(let host, let port): port == "80" || port == "443" ? host : "\(host):\(port)"
      case .unixSocket(let path): path
      }
    }
  }

  let name: Name
  private let loop: EventLoop
  private var budget: HostBudget<Transfer>
  private var timer: TimerID?
  private var restEnd = ""
  /// Called when it has no transfers and no wait that must be remembered.
  private let becameIdle: (UpstreamHost) -> Void

  /// Maximum Retry-After; a server that asks for more is contacted after this time.
  static let longestRest = Duration.seconds(24 * 3600)

  init(_ name: Name, places: Int, on loop: EventLoop, becameIdle: @escaping (UpstreamHost) -> Void) {
    self.name = name
    self.loop = loop
    self.becameIdle = becameIdle
    budget = HostBudget(places: places)
  }

  deinit {
    if let timer { loop.cancel(timer) }
  }

  /// Queues `transfer`; it begins in its turn, possibly before this returns. Not inside libcurl.
  func join(_ transfer: Transfer) {
    loop.assertOnLoop()
    budget.join(transfer)
    settle()
  }

  /// Removes `transfer` from the queue.
  func leave(_ transfer: Transfer) {
    loop.assertOnLoop()
    budget.leave(transfer)
    settle()
  }

  /// A transfer that had begun returns its place. Not inside libcurl: another one may begin.
  func free() {
    budget.free()
    settle()
  }

  /// Sets the number of places; more places may begin transfers at once. Not inside libcurl.
  func setPlaces(_ count: Int) {
    budget.places = count
    settle()
  }

  /// Lets no transfer begin for `duration`. May be called inside libcurl.
  func rest(for duration: Duration) {
    let duration = min(duration, Self.longestRest)
    let end = now + duration
    if end > budget.restsUntil {
      let time = WallTime(milliseconds: WallTime.now.milliseconds + duration.wholeMilliseconds)
      restEnd = time.description.prefix(19) + "Z"  // whole seconds, as in Retry-After
    }
    budget.rest(until: end)
    wakeUp(at: budget.restsUntil)
  }

  /// Ends the wait. Not inside libcurl: transfers may begin at once.
  func endRest() {
    budget.endRest()
    settle()
  }

  /// Why the queued transfers wait, as a sentence.
  var reasonToWait: String {
    now < budget.restsUntil
      ? "rate-limited by \(name.description) until \(restEnd) (Retry-After)"
      : "\(name.description) has max_per_host transfers in flight, \(budget.places)"
  }

  /// Whether no transfer occupies a place or waits for one.
  var isEmpty: Bool { budget.isEmpty }

  /// Cancels the start of every queued transfer.
  func dismissLine() {
    budget.dismissLine()
  }

  private func settle() {
    loop.assertOnLoop()
    while true {
      switch budget.next(at: now) {
      case .start(let transfer): transfer.begin()  // may call back into this type
      case .wait(let end): return wakeUp(at: end)
      case .rest:
        if budget.isEmpty { becameIdle(self) }
        return
      }
    }
  }

  private func wakeUp(at time: Duration) {
    guard timer == nil else { return }  // the timer checks again
    timer = loop.schedule(after: time - now) { [weak self] in
      self?.timer = nil
      self?.settle()
    }
  }

  private var now: Duration { EventLoop.monotonicTime }
}
