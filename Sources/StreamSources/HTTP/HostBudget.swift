/// How many transfers one host has at a time, whose turn comes next, and whether the host has asked for a rest.
///
/// Knows members and time; never a socket, a clock or a thread. First come, first served, so no source can keep another
/// from its turn: a source has one transfer at a time, and its next one goes to the end of the line.
struct HostBudget<Member: AnyObject> {
  /// What the caller must do now. Times are on the clock that the caller tells the time by.
  enum Action {
    /// It has a place from now on; to be given back with `free`.
    case start(Member)
    /// Ask again then, unless something changes before.
    case wait(until: Duration)
    /// Nothing is to be done until somebody joins or a place is given back.
    case rest
  }

  /// How many may have a place at a time, at least 1. Whoever has one keeps it when there are fewer from now on.
  var places: Int
  /// Until when nobody new is to start.
  private(set) var restsUntil = Duration.zero
  private var taken = 0
  private var line: [Member] = []

  init(places: Int) {
    precondition(places > 0, "a host with \(places) places is never reached")
    self.places = places
  }

  /// Goes to the end of the line.
  mutating func join(_ member: Member) {
    line.append(member)
  }

  /// Leaves the line; does nothing for who is not in it.
  mutating func leave(_ member: Member) {
    line.removeAll { $0 === member }
  }

  /// Nobody waits any longer.
  mutating func dismissLine() {
    line = []
  }

  /// Gives a place back.
  mutating func free() {
    precondition(taken > 0, "a place was returned that was not taken")
    taken -= 1
  }

  /// The host wants to be left alone. Of several such wishes the longest holds, whatever is answered meanwhile: those who
  /// are under way began before it was known.
  mutating func rest(until end: Duration) {
    restsUntil = max(restsUntil, end)
  }

  /// The host is asked again at once, whatever it wanted.
  mutating func endRest() {
    restsUntil = .zero
  }

  /// What is due at `now`. To be asked until it starts nobody, after each change and at the time that it named.
  mutating func next(at now: Duration) -> Action {
    guard now >= restsUntil else { return .wait(until: restsUntil) }
    guard taken < places, !line.isEmpty else { return .rest }
    taken += 1
    return .start(line.removeFirst())
  }

  /// Whether nobody has a place or wants one.
  var isEmpty: Bool { taken == 0 && line.isEmpty }
}
