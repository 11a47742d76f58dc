/// The transfers of one host: how many run at a time, which one is next, and whether the host's Retry-After, or a rate
/// limit of some of them, is in force.
///
/// Works on members and times; uses no socket, clock or thread. First come, first served: a source has one transfer at
/// a time and queues its next one at the end, so no source can keep another from its turn.
struct HostBudget<Member: AnyObject> {
  /// The action that the caller must perform. Times are on the clock that the caller passes.
  enum Action {
    /// The member occupies a place; `free` returns it.
    case start(Member)
    /// Call `next` again at that time, unless something changes before.
    case wait(until: Duration)
    /// Nothing is due until a member joins or a place is returned.
    case rest
  }

  /// Maximum number of occupied places, at least 1. A lower value does not take places away.
  var places: Int
  /// The time before which no member starts.
  private(set) var restsUntil = Duration.zero
  private var taken = 0
  private var line: [(member: Member, account: String)] = []
  /// The time before which no member of an account starts.
  private var limits: [String: Duration] = [:]

  init(places: Int) {
    precondition(places > 0, "a host must have at least 1 place, not \(places)")
    self.places = places
  }

  /// Queues the member at the end.
  /// - Parameter account: whose rate limits apply.
  mutating func join(_ member: Member, of account: String = "") {
    line.append((member, account))
  }

  /// Removes the member from the queue, if it is in it.
  mutating func leave(_ member: Member) {
    line.removeAll { $0.member === member }
  }

  /// Empties the queue.
  mutating func dismissLine() {
    line = []
  }

  /// Returns a place.
  mutating func free() {
    precondition(taken > 0, "a place was returned that was not taken")
    taken -= 1
  }

  /// Lets no member start before `end`. The latest such time applies. Responses that arrive meanwhile do not change it,
  /// because their requests were sent before the host asked for the wait.
  mutating func rest(until end: Duration) {
    restsUntil = max(restsUntil, end)
  }

  /// Lets no member of the account start before `end`, in the same way.
  mutating func rest(until end: Duration, of account: String) {
    limits[account] = max(limits[account] ?? .zero, end)
  }

  /// The time before which no member of the account starts because of its rate limit; zero: there is none.
  func limit(of account: String) -> Duration { limits[account] ?? .zero }

  /// Ends the waits at once, even if the host asked for them.
  mutating func endRest() {
    (restsUntil, limits) = (.zero, [:])
  }

  /// The action due at `now`. Call it until it starts no member, after each change, and at the time that it returns.
  mutating func next(at now: Duration) -> Action {
    guard now >= restsUntil else { return .wait(until: restsUntil) }
    limits = limits.filter { $0.value > now }
    guard taken < places, !line.isEmpty else { return .rest }
    guard let index = line.firstIndex(where: { limits[$0.account] == nil }) else {
      return .wait(until: line.compactMap { limits[$0.account] }.min() ?? now)
    }
    taken += 1
    return .start(line.remove(at: index).member)
  }

  /// Whether no member occupies a place or waits for one.
  var isEmpty: Bool { taken == 0 && line.isEmpty && limits.isEmpty }
}
