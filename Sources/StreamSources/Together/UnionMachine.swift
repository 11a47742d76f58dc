import StreamRuntime

/// Decides what an upstream with connections is asked for: the union of the values that are wanted, on as many connections as
/// they need. Works on values, answers and times; uses no socket, clock or thread.
///
/// Invariants, which the random tests check against a model:
/// - A connection has at most `most` values, counting those that it has not unsubscribed yet.
/// - On an open connection the messages that were returned are a subscription for each value that it has, and none for
///   another one, as soon as no action is due.
/// - In no `window` are more than `pace` messages returned for a connection.
/// - A value that is wanted again before its `linger` is over causes no message.
struct UnionMachine {
  struct Terms: Equatable, Sendable {
    /// Values of a connection; at least 1.
    var most: Int
    /// The time from the end of a value's last use to its unsubscription.
    var linger = Duration.seconds(1)
    /// Messages on one connection within `window`; at least 1.
    var pace = 10
    /// Whether one message can have many values.
    var gathers = true
    /// Whether messages tell the upstream which values are wanted. Without them it sends all of its values.
    var speaks = true
    /// Whether a message has all values of its connection, and takes the place of the one before. There is nothing to open, then.
    var replaces = false
    /// The pause after a refusal.
    var retry = Backoff()
    /// The time without an event after which a value is subscribed to again; nil: never.
    var expectEvery: Duration?
  }

  /// The action that the caller must perform.
  enum Action: Equatable {
    /// Open a connection, and again whenever it ends.
    case open(Int)
    /// Close it for good.
    case close(Int)
    /// Send one message.
    case subscribe([String], on: Int)
    case unsubscribe([String], on: Int)
    /// Call `next` again at that time.
    case wait(until: Duration)
    case rest
  }

  /// A value that the upstream has refused.
  typealias Refusal = UnionRequests.Refusal

  private struct Value {
    var users = 0
    /// The number of its connection.
    var place: Int
    /// Whether a subscription was sent on its open connection, and not refused.
    var isAsked = false
    /// Whether it is among the connection's subscriptions that are to be sent, perhaps again.
    var isDue = false
    /// When it was asked for, or heard of.
    var heardAt = Duration.zero
    /// When it is given up; nil: it is used.
    var leavesAt: Duration?
    var refusals = 0
    var isRefused = false
  }

  private struct Place {
    var values: Set<String> = []
    /// Values that are not wanted, and whose unsubscription is to be sent.
    var leaving: Set<String> = []
    var unsubscriptions: [String] = []
    /// The values of the next subscriptions. A value that is not due any more is skipped.
    var subscriptions: [String] = []
    /// Whether the caller was told to open it, and whether it is open.
    var isBegun = false
    var isOpen = false
    /// The times of the last messages.
    var sent: [Duration] = []

    var count: Int { values.count + leaving.count }
  }

  /// A second, and something for the way to the upstream.
  static let window = Duration.milliseconds(1100)

  private(set) var terms: Terms
  private var random: SplitMix
  private var values: [String: Value] = [:]
  private var places: [Place?] = []
  /// The values that are given up, with the times in their order; those that are wanted again are skipped.
  private var departures: [(value: String, time: Duration)] = []
  private var firstDeparture = 0
  /// When refused values are asked for again.
  private var retries: [String: Duration] = [:]
  private var nextRetry: Duration?
  private var nextLook: Duration?

  init(_ terms: Terms, seed: UInt64) {
    self.terms = terms
    random = SplitMix(seed: seed)
  }

  /// The number of values that are wanted, or linger.
  var count: Int { values.count }

  /// The values of a connection.
  func values(of place: Int) -> Set<String> { places.indices.contains(place) ? places[place]?.values ?? [] : [] }

  /// The connection of a value; nil: it is not wanted.
  func place(of value: String) -> Int? { values[value]?.place }

  // MARK: Demand

  /// One more stream wants the value.
  mutating func want(_ value: String, at now: Duration) {
    if values[value] != nil {
      values[value]?.users += 1
      values[value]?.leavesAt = nil
      queue(value)
      return
    }
    var new = Value(users: 1, place: 0)
    if let place = places.indices.first(where: { places[$0]?.leaving.contains(value) == true }) {
      // Its unsubscription was not sent.
      places[place]?.leaving.remove(value)
      places[place]?.unsubscriptions.removeAll { $0 == value }
      places[place]?.values.insert(value)
      (new.place, new.isAsked, new.heardAt) = (place, true, now)
      values[value] = new
      return
    }
    values[value] = new
    assign(value)
  }

  /// One stream wants it no more.
  mutating func leave(_ value: String, at now: Duration) {
    guard let users = values[value]?.users, users > 0 else { return }
    values[value]?.users = users - 1
    guard users == 1 else { return }
    values[value]?.leavesAt = now + terms.linger
    departures.append((value, now + terms.linger))
  }

  private mutating func assign(_ value: String) {
    let room = places.indices.first { places[$0].map { $0.count < terms.most } == true }
    let place = room ?? places.firstIndex { $0 == nil } ?? places.endIndex
    if place == places.endIndex { places.append(Place()) } else if room == nil { places[place] = Place() }
    places[place]?.values.insert(value)
    values[value]?.place = place
    setUnasked(value)
    queue(value)
  }

  private mutating func setUnasked(_ value: String) {
    values[value]?.isAsked = false
    values[value]?.isDue = false
  }

  /// Lets a value be subscribed to, if it is to be.
  private mutating func queue(_ value: String) {
    guard terms.speaks, let state = values[value], !state.isAsked, !state.isDue, !state.isRefused, state.users > 0,
      places[state.place]?.isOpen == true
    else { return }
    values[value]?.isDue = true
    places[state.place]?.subscriptions.append(value)
  }

  // MARK: Connections

  /// The connection is open.
  /// - Parameter count: messages that were sent on it.
  mutating func opened(_ place: Int, at now: Duration, sent count: Int = 0) {
    guard places.indices.contains(place), places[place]?.isBegun == true else { return }
    places[place]?.isOpen = true
    places[place]?.sent = Array(repeating: now, count: min(count, terms.pace))
    for value in values(of: place).sorted() { queue(value) }
  }

  /// The connection has ended; it will be opened again.
  mutating func ended(_ place: Int) {
    guard places.indices.contains(place), let former = places[place] else { return }
    places[place] = Place(values: former.values, isBegun: former.isBegun)
    for value in former.values { setUnasked(value) }
  }

  /// An event of the value has come.
  /// - Returns: whether it was refused before.
  mutating func heard(_ value: String, at now: Duration) -> Bool {
    guard let index = values.index(forKey: value) else { return false }
    values.values[index].heardAt = now
    guard values.values[index].isRefused else {
      values.values[index].refusals = 0
      return false
    }
    (values.values[index].isRefused, values.values[index].isAsked, values.values[index].refusals) = (false, true, 0)
    retries[value] = nil
    return true
  }

  /// The upstream refuses the value.
  /// - Returns: nil: it was not asked for.
  mutating func refused(_ value: String, at now: Duration) -> Refusal? {
    guard var state = values[value], state.isAsked else { return nil }
    state.refusals += 1
    (state.isRefused, state.isAsked, state.isDue) = (true, false, false)
    let time = terms.retry.delay(afterFailures: state.refusals, fraction: random.fraction())
    values[value] = state
    retries[value] = now + time
    nextRetry = min(nextRetry ?? now + time, now + time)
    return Refusal(value: value, count: state.refusals, retryIn: time)
  }

  /// Continues with other terms. Values move to other connections only if theirs have too many of them. Another `speaks`
  /// takes effect with `restart`.
  mutating func change(to terms: Terms) {
    self.terms = terms
    (nextLook, nextRetry) = (nil, retries.values.min())
    for index in places.indices {
      guard let place = places[index], place.count > terms.most else { continue }
      let moved = place.values.sorted().suffix(max(0, place.count - terms.most))
      for value in moved {
        giveUp(value, on: index)
        if values[value]?.users ?? 0 > 0 { assign(value) } else { values[value] = nil }
      }
    }
  }

  /// The caller closes all connections, and opens those that are wanted anew.
  mutating func restart() {
    for index in places.indices where places[index] != nil {
      ended(index)
      places[index]?.isBegun = false
    }
  }

  // MARK: Actions

  /// The action that is due. Call it after each change, and at the time that it returns.
  mutating func next(at now: Duration) -> Action {
    passTime(to: now)
    var due: Duration?
    for index in places.indices {
      guard let place = places[index] else { continue }
      if place.values.isEmpty {
        places[index] = nil
        if place.isBegun { return .close(index) }
        continue
      }
      if !place.isBegun {
        places[index]?.isBegun = true
        guard terms.replaces else { return .open(index) }
        opened(index, at: now)
      }
      guard let place = places[index], place.isOpen, !place.subscriptions.isEmpty || !place.unsubscriptions.isEmpty
      else { continue }
      let wait = place.sent.count < terms.pace ? now : place.sent[place.sent.count - terms.pace] + Self.window
      guard wait <= now else {
        due = min(due ?? wait, wait)
        continue
      }
      if let action = message(on: index, at: now) { return action }
    }
    let times = [due, departures.count > firstDeparture ? departures[firstDeparture].time : nil, nextRetry, nextLook]
    return times.compactMap(\.self).min().map { .wait(until: $0) } ?? .rest
  }

  private mutating func message(on index: Int, at now: Duration) -> Action? {
    guard var place = places[index].take() else { return nil }
    defer { places[index] = place }
    if terms.replaces {
      for value in place.values {
        values[value]?.isAsked = true
        values[value]?.isDue = false
      }
      (place.subscriptions, place.unsubscriptions, place.leaving) = ([], [], [])
      note(now, &place)
      return .subscribe(place.values.sorted(), on: index)
    }
    var subscribed: [String] = []
    let limit = terms.gathers ? Int.max : 1
    var taken = 0
    for value in place.subscriptions {
      guard subscribed.count < limit else { break }
      taken += 1
      guard let state = values[value], state.place == index, state.isDue else { continue }
      values[value]?.isDue = false
      guard state.users > 0 else { continue }
      values[value]?.isAsked = true
      values[value]?.heardAt = now
      subscribed.append(value)
    }
    place.subscriptions.removeFirst(taken)
    if subscribed.isEmpty {
      let count = min(limit, place.unsubscriptions.count)
      guard count > 0 else { return nil }
      let gone = Array(place.unsubscriptions[..<count])
      place.unsubscriptions.removeFirst(count)
      place.leaving.subtract(gone)
      note(now, &place)
      return .unsubscribe(gone, on: index)
    }
    note(now, &place)
    return .subscribe(subscribed, on: index)
  }

  private func note(_ now: Duration, _ place: inout Place) {
    place.sent.append(now)
    if place.sent.count > terms.pace { place.sent.removeFirst(place.sent.count - terms.pace) }
  }

  private mutating func passTime(to now: Duration) {
    while firstDeparture < departures.count, departures[firstDeparture].time <= now {
      let value = departures[firstDeparture].value
      firstDeparture += 1
      guard let state = values[value], let time = state.leavesAt, time <= now else { continue }
      giveUp(value, on: state.place)
      values[value] = nil
      retries[value] = nil
    }
    if firstDeparture > 1024, firstDeparture > departures.count / 2 {
      departures.removeFirst(firstDeparture)
      firstDeparture = 0
    }
    if let time = nextRetry, time <= now {
      for (value, time) in retries where time <= now {
        retries[value] = nil
        values[value]?.isRefused = false
        queue(value)
      }
      nextRetry = retries.values.min()
    }
    look(at: now)
  }

  /// Finds values without an event for too long.
  private mutating func look(at now: Duration) {
    guard let limit = terms.expectEvery, terms.speaks else { return }
    guard !values.isEmpty else {
      nextLook = nil
      return
    }
    guard let time = nextLook else {
      nextLook = now + limit / 4
      return
    }
    guard time <= now else { return }
    nextLook = now + limit / 4
    for (value, state) in values
    where state.isAsked && !state.isDue && state.users > 0 && now - state.heardAt >= limit {
      values[value]?.isDue = true
      places[state.place]?.subscriptions.append(value)
    }
  }

  /// Takes a value from its connection, which unsubscribes from it if it has to.
  private mutating func giveUp(_ value: String, on index: Int) {
    places[index]?.values.remove(value)
    guard values[value]?.isAsked == true else { return }
    places[index]?.leaving.insert(value)
    places[index]?.unsubscriptions.append(value)
  }
}
