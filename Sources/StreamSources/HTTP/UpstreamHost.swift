import StreamRuntime

/// One upstream host: the budget that all sources share who talk to it, on the loop's clock. Belongs to the loop.
final class UpstreamHost {
  /// What shares a budget.
  enum Name: Hashable {
    /// Host and port of a URL. Not its scheme: one server answers behind both.
    case network(host: String, port: String)
    /// A Unix socket's path, whatever host the URL names.
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
  /// Told when it has nobody left, nor a rest that would have to be remembered.
  private let becameIdle: (UpstreamHost) -> Void

  /// A server that asks for more patience than this is asked again all the same.
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

  /// Puts `transfer` in line; it begins when its turn comes, which may be before this returns. Not inside libcurl.
  func join(_ transfer: Transfer) {
    loop.assertOnLoop()
    budget.join(transfer)
    settle()
  }

  /// `transfer` does not wait any longer.
  func leave(_ transfer: Transfer) {
    loop.assertOnLoop()
    budget.leave(transfer)
    settle()
  }

  /// A transfer that had begun needs its place no more. Not inside libcurl: another one may begin.
  func free() {
    budget.free()
    settle()
  }

  /// More places may begin transfers at once. Not inside libcurl.
  func setPlaces(_ count: Int) {
    budget.places = count
    settle()
  }

  /// Nobody new begins for so long. May be called inside libcurl.
  func rest(for duration: Duration) {
    let duration = min(duration, Self.longestRest)
    let end = now + duration
    if end > budget.restsUntil {
      let time = WallTime(milliseconds: WallTime.now.milliseconds + duration.wholeMilliseconds)
      restEnd = time.description.prefix(19) + "Z"  // whole seconds, as it was asked for
    }
    budget.rest(until: end)
    wakeUp(at: budget.restsUntil)
  }

  /// It rests no longer. Not inside libcurl: transfers may begin at once.
  func endRest() {
    budget.endRest()
    settle()
  }

  /// Why who is in line has to wait, in a sentence.
  var reasonToWait: String {
    now < budget.restsUntil
      ? "rate-limited by \(name.description) until \(restEnd) (Retry-After)"
      : "\(name.description) has max_per_host transfers in flight, \(budget.places)"
  }

  /// Whether nobody has a place or wants one.
  var isEmpty: Bool { budget.isEmpty }

  /// Nobody begins any more who is in line now.
  func dismissLine() {
    budget.dismissLine()
  }

  private func settle() {
    loop.assertOnLoop()
    while true {
      switch budget.next(at: now) {
      case .start(let transfer): transfer.begin()  // may come back here
      case .wait(let end): return wakeUp(at: end)
      case .rest:
        if budget.isEmpty { becameIdle(self) }
        return
      }
    }
  }

  private func wakeUp(at time: Duration) {
    guard timer == nil else { return }  // it looks again when it comes round
    timer = loop.schedule(after: time - now) { [weak self] in
      self?.timer = nil
      self?.settle()
    }
  }

  private var now: Duration { EventLoop.monotonicTime }
}
