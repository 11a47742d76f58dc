import StreamRuntime
import Testing

@testable import StreamSources

struct UnionMachineTests {
  private let now = Duration.seconds(1000)

  private func machine(_ change: (inout UnionMachine.Terms) -> Void = { _ in }) -> UnionMachine {
    var terms = UnionMachine.Terms(most: 200)
    change(&terms)
    return UnionMachine(terms, seed: 1)
  }

  /// The messages and openings that are due.
  private func due(_ machine: inout UnionMachine, at now: Duration) -> [UnionMachine.Action] {
    var actions: [UnionMachine.Action] = []
    while true {
      let action = machine.next(at: now)
      switch action {
      case .wait, .rest: return actions
      default: actions.append(action)
      }
    }
  }

  private func next(_ machine: inout UnionMachine, _ now: Duration) -> UnionMachine.Action { machine.next(at: now) }

  /// The number of refusals in a row; 0: it is none.
  private func refuse(_ machine: inout UnionMachine, _ value: String, at now: Duration) -> Int {
    machine.refused(value, at: now)?.count ?? 0
  }

  @Test func theUnionIsSubscribedToInOneMessageForEachConnection() {
    var machine = machine()
    for number in 0..<1000 { machine.want("v\(number)", at: now) }
    #expect(due(&machine, at: now) == (0..<5).map { .open($0) })
    var values: Set<String> = []
    for place in 0..<5 {
      machine.opened(place, at: now)
      let actions = due(&machine, at: now)
      guard actions.count == 1, case .subscribe(let some, place) = actions[0] else {
        Issue.record("\(actions)")
        continue
      }
      #expect(some.count == 200)
      values.formUnion(some)
    }
    #expect(values.count == 1000)
  }

  @Test func aValueThatLeavesAndReturnsWhileItLingersSendsNothing() {
    var machine = machine()
    machine.want("a", at: now)
    _ = due(&machine, at: now)
    machine.opened(0, at: now)
    #expect(due(&machine, at: now) == [.subscribe(["a"], on: 0)])
    for step in 0..<10_000 {
      let time = now + .milliseconds(step / 20)
      machine.leave("a", at: time)
      machine.want("a", at: time)
      #expect(next(&machine, time) != .close(0))
    }
    let later = now + .seconds(20)
    #expect(due(&machine, at: later).isEmpty)
    machine.leave("a", at: later)
    #expect(next(&machine, later) == .wait(until: later + .seconds(1)))
    // The last value of a connection closes it.
    #expect(due(&machine, at: later + .seconds(1)) == [.close(0)])
    #expect(machine.count == 0 && next(&machine, later + .seconds(9)) == .rest)
  }

  @Test func aValueThatIsNotWantedIsUnsubscribedOnceItHasLingered() {
    var machine = machine()
    machine.want("a", at: now)
    machine.want("b", at: now)
    _ = due(&machine, at: now)
    machine.opened(0, at: now)
    #expect(due(&machine, at: now) == [.subscribe(["a", "b"], on: 0)])
    machine.leave("b", at: now)
    #expect(due(&machine, at: now + .milliseconds(999)).isEmpty)
    #expect(due(&machine, at: now + .seconds(1)) == [.unsubscribe(["b"], on: 0)])
  }

  @Test func noMoreMessagesThanThePaceAreSentInASecond() {
    var machine = machine { ($0.pace, $0.gathers) = (10, false) }
    for number in 0..<35 { machine.want("v\(number)", at: now) }
    _ = due(&machine, at: now)
    machine.opened(0, at: now, sent: 2)
    #expect(due(&machine, at: now).count == 8)
    guard case .wait(let until) = machine.next(at: now) else { return #expect(Bool(false)) }
    #expect(until == now + UnionMachine.window)
    #expect(due(&machine, at: until).count == 10)
    #expect(due(&machine, at: until + .milliseconds(500)).isEmpty)
    #expect(due(&machine, at: until + UnionMachine.window).count == 10)
  }

  @Test func afterAReconnectTheWholeUnionIsSubscribedToAgainAndNothingElse() {
    var machine = machine()
    for name in ["a", "b", "c"] { machine.want(name, at: now) }
    _ = due(&machine, at: now)
    machine.opened(0, at: now)
    _ = due(&machine, at: now)
    machine.leave("c", at: now)
    machine.ended(0)
    #expect(due(&machine, at: now).isEmpty)
    machine.opened(0, at: now)
    #expect(due(&machine, at: now) == [.subscribe(["a", "b"], on: 0)])
    #expect(due(&machine, at: now + .seconds(5)).isEmpty)
  }

  @Test func aRefusedValueFailsAloneAndIsAskedForAgainAfterAPause() {
    var machine = machine { $0.retry = Backoff(first: .seconds(10), max: .seconds(60)) }
    for name in ["a", "b"] { machine.want(name, at: now) }
    _ = due(&machine, at: now)
    machine.opened(0, at: now)
    _ = due(&machine, at: now)
    #expect(refuse(&machine, "c", at: now) == 0)
    let refusal = machine.refused("a", at: now)
    #expect(refusal?.value == "a" && refusal?.count == 1)
    #expect(refuse(&machine, "a", at: now) == 0)
    #expect(due(&machine, at: now + .seconds(4)).isEmpty)
    #expect(due(&machine, at: now + .seconds(11)) == [.subscribe(["a"], on: 0)])
    #expect(refuse(&machine, "a", at: now + .seconds(12)) == 2)
    // An event of it shows that it is not refused.
    let wasRefused = machine.heard("a", at: now + .seconds(12))
    #expect(wasRefused)
    #expect(due(&machine, at: now + .seconds(900)).isEmpty)
  }

  @Test func aValueOfWhichNothingComesIsSubscribedToAgain() {
    var machine = machine { $0.expectEvery = .seconds(20) }
    for name in ["a", "b"] { machine.want(name, at: now) }
    _ = due(&machine, at: now)
    machine.opened(0, at: now)
    _ = due(&machine, at: now)
    var subscribed: [UnionMachine.Action] = []
    for second in 1...39 {
      _ = machine.heard("a", at: now + .seconds(second))
      subscribed += due(&machine, at: now + .seconds(second))
    }
    #expect(subscribed == [.subscribe(["b"], on: 0)])
  }

  @Test func otherTermsMoveOnlyTheValuesThatAreTooMany() {
    var machine = machine()
    for number in 100..<300 { machine.want("v\(number)", at: now) }
    _ = due(&machine, at: now)
    machine.opened(0, at: now)
    _ = due(&machine, at: now)
    var terms = machine.terms
    terms.most = 300
    machine.change(to: terms)
    #expect(due(&machine, at: now).isEmpty)
    terms.most = 150
    machine.change(to: terms)
    let moved = (250..<300).map { "v\($0)" }
    #expect(due(&machine, at: now) == [.unsubscribe(moved, on: 0), .open(1)])
    machine.opened(1, at: now)
    #expect(due(&machine, at: now) == [.subscribe(moved, on: 1)])
  }

  /// An upstream, as far as the messages say: which values each open connection has.
  private struct Model {
    var open: Set<Int> = []
    var begun: Set<Int> = []
    var subscribed: [Int: Set<String>] = [:]
    var sent: [Int: [Duration]] = [:]
    /// Whether it has lost a message.
    var hasLost = false

    mutating func take(_ action: UnionMachine.Action, at now: Duration, loses: Bool) {
      switch action {
      case .open(let place):
        let isNew = begun.insert(place).inserted
        #expect(isNew)
      case .close(let place):
        let isBegun = begun.remove(place) != nil
        #expect(isBegun)
        end(place)
      case .subscribe(let values, let place), .unsubscribe(let values, let place):
        #expect(open.contains(place) && !values.isEmpty && Set(values).count == values.count)
        sent[place, default: []].append(now)
        if loses {
          hasLost = true
        } else if case .subscribe = action {
          subscribed[place, default: []].formUnion(values)
        } else {
          #expect(hasLost || subscribed[place, default: []].isSuperset(of: values))
          subscribed[place, default: []].subtract(values)
        }
      case .wait, .rest: break
      }
    }

    mutating func end(_ place: Int) {
      open.remove(place)
      (subscribed[place], sent[place]) = (nil, nil)
    }

    var values: [String] { subscribed.values.flatMap(\.self) }
  }

  @Test(arguments: 0..<300) func atRandomTheUpstreamHasWhatIsWantedAndNothingElse(seed: Int) {
    var random = SplitMix(seed: UInt64(seed))
    let loses = seed % 3 == 0
    let most = Int.random(in: 1...9, using: &random)
    var machine = machine {
      ($0.most, $0.pace, $0.gathers) = (most, Int.random(in: 1...5, using: &random), Bool.random(using: &random))
      $0.expectEvery = loses ? .seconds(30) : nil
    }
    var (model, users, time) = (Model(), [String: Int](), now)
    func perform(_ isQuiet: Bool) {
      while true {
        let action = machine.next(at: time)
        model.take(action, at: time, loses: loses && !isQuiet && Int.random(in: 0..<5, using: &random) == 0)
        if case .rest = action { return }
        if case .wait(let until) = action {
          #expect(until > time)
          return
        }
      }
    }
    for _ in 0..<400 {
      let value = "v\(Int.random(in: 0..<30, using: &random))"
      switch Int.random(in: 0..<12, using: &random) {
      case 0...3:
        users[value, default: 0] += 1
        machine.want(value, at: time)
      case 4...6 where users[value] ?? 0 > 0:
        users[value, default: 0] -= 1
        machine.leave(value, at: time)
      case 7, 8:
        guard let place = model.begun.subtracting(model.open).sorted().first else { break }
        model.open.insert(place)
        machine.opened(place, at: time)
      case 9 where Int.random(in: 0..<3, using: &random) == 0:
        guard let place = model.open.sorted().first else { break }
        model.end(place)
        machine.ended(place)
      case 10 where Int.random(in: 0..<8, using: &random) == 0:
        var terms = machine.terms
        terms.most = Int.random(in: 1...9, using: &random)
        machine.change(to: terms)
      case _: time += .milliseconds(Int.random(in: 0...700, using: &random))
      }
      if Bool.random(using: &random) { perform(false) }
      for (_, times) in model.sent {
        for (first, last) in zip(times, times.dropFirst(machine.terms.pace)) { #expect(last - first >= .seconds(1)) }
      }
    }
    // At the end of all that was under way.
    for _ in 0..<400 {
      for place in model.begun.subtracting(model.open) {
        model.open.insert(place)
        machine.opened(place, at: time)
      }
      time += .milliseconds(400)
      perform(true)
    }
    let wanted = users.filter { $0.value > 0 }.keys.sorted()
    #expect(Set(model.values).isSuperset(of: wanted))
    if !model.hasLost { #expect(model.values.sorted() == wanted) }
    for place in model.begun { #expect(machine.values(of: place).count <= machine.terms.most) }
  }
}
