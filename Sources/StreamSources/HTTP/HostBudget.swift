/// The transfers of one host: how many run at a time, which one is next, and whether the host's Retry-After is in
/// force.
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
  private var line: [Member] = []

  init(places: Int) {
    precondition(places > 0, "a host must have at least 1 place, not \(places)")
    self.places = places
  }

  /// Queues the member at the end.
  mutating func join(_ member: Member) {
    line.append(member)
  }

  /// Removes the member from the queue, if it is in it.
  mutating func leave(_ member: Member) {
    line.removeAll { $0 === member }
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

  /// Ends the wait at once, even if the host asked for it.
  mutating func endRest() {
    restsUntil = .zero
  }

  /// The action due at `now`. Call it until it starts no member, after each change, and at the time that it returns.
  mutating func next(at now: Duration) -> Action {
    guard now >= restsUntil else { return .wait(until: restsUntil) }
    guard taken < places, !line.isEmpty else { return .rest }
    taken += 1
    return .start(line.removeFirst())
  }

  /// Whether no member occupies a place or waits for one.
  var isEmpty: Bool { taken == 0 && line.isEmpty }
}
