import StreamRuntime

/// Divides the values that have demand among the requests of each period of a poll. Works on values, answers and times; uses
/// no socket, clock or thread.
///
/// A period has one request for each `most` values. An upstream that refuses a request for several values does not say which
/// value is the reason: they are *suspects* from then on, and are asked for in halves, outside the requests of the others.
/// These further requests are at most 2 × log2 of `most` in a period; what is not found within them waits for its retry.
/// A value that is refused alone is found: it waits for its own retry, which comes later after each refusal.
struct UnionRequests {
  /// Values that are asked for together, because one request with all of them was refused.
  private struct Suspects {
    var values: [String]
    var failures: Int
    var due: Duration
  }

  /// A value that the upstream has refused.
  struct Refusal: Equatable {
    let value: String
    /// In a row.
    let count: Int
    let retryIn: Duration
  }

  private let most: Int
  private let retry: Backoff
  private var random: SplitMix
  /// The values with demand, and those among them that are in no request of several values for now.
  private var wanted: Set<String> = []
  private var suspects: [Suspects] = []
  private var suspected: Set<String> = []
  /// The requests of this period that were not made yet.
  private var rest: [[String]] = []
  private var current: Suspects?
  private var isProbe = false
  /// The further requests that this period may have.
  private var probes = 0
  /// Whether any request of this period had an answer.
  private(set) var hasAnswer = false

  /// - Parameter most: of the values of a request; at least 1.
  init(most: Int, retry: Backoff, seed: UInt64) {
    precondition(most > 0, "a request has at least one value, not \(most)")
    (self.most, self.retry) = (most, retry)
    random = SplitMix(seed: seed)
  }

  /// Whether nothing is to be asked for.
  var isEmpty: Bool { wanted.isEmpty }

  /// Sets whether a value has demand.
  mutating func set(_ value: String, isWanted: Bool) {
    if isWanted { wanted.insert(value) } else { wanted.remove(value) }
  }

  /// The values of the next request, in their order; nil: this period has no other request, and the next call begins another.
  mutating func next(at now: Duration) -> [String]? {
    failed()  // the answer to the last request was not awaited
    if !isInPeriod { begin(at: now) }
    while let values = rest.popLast()?.filter(isAsked) {
      guard !values.isEmpty else { continue }
      (current, isProbe) = (Suspects(values: values, failures: 0, due: now), false)
      return values
    }
    while probes > 0, let index = suspects.lastIndex(where: { $0.due <= now }) {
      var group = suspects.remove(at: index)
      suspected.subtract(group.values)
      group.values = group.values.filter(wanted.contains)
      guard !group.values.isEmpty else { continue }
      suspected.formUnion(group.values)
      probes -= 1
      (current, isProbe) = (group, true)
      return group.values
    }
    end(at: now)
    return nil
  }

  private var isInPeriod = false

  private func isAsked(_ value: String) -> Bool { wanted.contains(value) && !suspected.contains(value) }

  private mutating func begin(at now: Duration) {
    (isInPeriod, hasAnswer) = (true, false)
    probes = 2 * max(1, Int.bitWidth - (most - 1).leadingZeroBitCount)
    // These values have no demand any more. A later demand begins without suspicion.
    suspects.removeAll { group in
      let isOver = group.due <= now && wanted.isDisjoint(with: group.values)
      if isOver { suspected.subtract(group.values) }
      return isOver
    }
    let values = wanted.subtracting(suspected).sorted()
    rest = stride(from: 0, to: values.count, by: most).map { Array(values[$0..<min($0 + most, values.count)]) }
      .reversed()
  }

  /// Ends the period. What is suspected and was not asked for waits.
  mutating func end(at now: Duration) {
    isInPeriod = false
    for index in suspects.indices where suspects[index].due <= now {
      suspects[index].failures += 1
      suspects[index].due = now + delay(afterFailures: suspects[index].failures)
    }
  }

  private mutating func delay(afterFailures count: Int) -> Duration {
    retry.delay(afterFailures: count, fraction: random.fraction())
  }

  /// Whether `next` has another request in this period.
  func goesOn(at now: Duration) -> Bool {
    rest.contains { $0.contains(where: isAsked) }
      || probes > 0 && suspects.contains { $0.due <= now && !wanted.isDisjoint(with: $0.values) }
  }

  /// The upstream has answered the request.
  /// - Returns: its values.
  mutating func answered() -> [String] {
    hasAnswer = true
    guard let group = current.take() else { return [] }
    if isProbe { suspected.subtract(group.values) }
    return group.values
  }

  /// The request has failed for a reason that is not its values. It is the last one of the period now.
  mutating func failed() {
    guard let group = current.take() else { return }
    if isProbe { suspects.insert(group, at: 0) } else { rest.insert(group.values, at: 0) }
  }

  /// The upstream has refused the request, perhaps because of one of its values.
  /// - Returns: the value, if that is certain.
  mutating func refused(at now: Duration) -> Refusal? {
    guard let group = current.take() else { return nil }
    suspected.formUnion(group.values)
    guard group.values.count > 1 else {
      let (count, value) = (group.failures + 1, group.values[0])
      let time = delay(afterFailures: count)
      suspects.insert(Suspects(values: [value], failures: count, due: now + time), at: 0)
      return Refusal(value: value, count: count, retryIn: time)
    }
    let half = group.values.count / 2
    for values in [group.values[half...], group.values[..<half]] {
      suspects.append(Suspects(values: Array(values), failures: group.failures, due: now))
    }
    return nil
  }
}
