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
  /// The sentences on rate limits, by account.
  private var limits: [String: String] = [:]
  private let pauses: PauseBook
  /// Called when it has no transfers and no wait that must be remembered.
  private let becameIdle: (UpstreamHost) -> Void

  /// Maximum Retry-After; a server that asks for more is contacted after this time.
  static let longestRest = Duration.seconds(24 * 3600)

  /// - Parameter pauses: those of the former process, in which this one's are noted.
  init(_ name: Name, places: Int, on loop: EventLoop, _ pauses: PauseBook, becameIdle: @escaping (UpstreamHost) -> Void)
  {
    self.name = name
    (self.loop, self.pauses) = (loop, pauses)
    self.becameIdle = becameIdle
    budget = HostBudget(places: places)
  }

  deinit {
    if let timer { loop.cancel(timer) }
  }

  /// Queues `transfer`; it begins in its turn, possibly before this returns. Not inside libcurl.
  func join(_ transfer: Transfer, of account: String) {
    loop.assertOnLoop()
    if let rest = pauses.rest(of: storedName()), now + rest > budget.restsUntil { hold(for: rest) }
    if let rest = pauses.rest(of: storedName(account)), now + rest > budget.limit(of: account) {
      hold(for: rest, of: account)
    }
    budget.join(transfer, of: account)
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
    hold(for: duration)
    pauses.note(budget.restsUntil - now, of: storedName())
  }

  /// Lets no transfer of the account begin for `duration`. May be called inside libcurl.
  func rest(for duration: Duration, of account: String) {
    hold(for: duration, of: account)
    pauses.note(budget.limit(of: account) - now, of: storedName(account))
  }

  private func storedName(_ account: String? = nil) -> String {
    "host \(name.description)" + (account.map { " \($0)" } ?? "")
  }

  private func hold(for duration: Duration) {
    let duration = min(duration, Self.longestRest)
    let end = now + duration
    if end > budget.restsUntil {
      let time = WallTime(milliseconds: WallTime.now.milliseconds + duration.wholeMilliseconds)
      restEnd = time.description.prefix(19) + "Z"  // whole seconds, as in Retry-After
    }
    budget.rest(until: end)
    wakeUp(at: budget.restsUntil)
  }

  private func hold(for pause: Duration, of account: String) {
    let end = now + min(pause, Self.longestRest)
    if end > budget.limit(of: account) {
      let pause = RequestPause(duration: pause, reason: "rate limit of \(name.description)")
      limits[account] = pause.sentence(at: WallTime.now.milliseconds)
    }
    budget.rest(until: end, of: account)
    wakeUp(at: end)
  }

  /// Ends the waits. Not inside libcurl: transfers may begin at once.
  func endRest() {
    budget.endRest()
    settle()
  }

  /// Why the queued transfers of the account wait, as a sentence.
  func reasonToWait(of account: String) -> String {
    if now < budget.restsUntil { return "rate-limited by \(name.description) until \(restEnd) (Retry-After)" }
    if now < budget.limit(of: account), let limit = limits[account] { return limit }
    return "\(name.description) has max_per_host transfers in flight, \(budget.places)"
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
