import Testing

/// The steps in which a writer and the readers of a waiting page use the words `end`, `wake` and `waiting`, in every order.
private struct WaitingModel: Hashable {
  /// The writer increments `wake` once more before it wakes readers, for one that is about to sleep.
  var incrementsAgain = true
  /// A reader looks whether its note is still there after it has read `wake`.
  var looksAgain = true

  private var end = 0
  private var wake = 0
  private var waiting = false
  private var events: Int
  private var writer = WriterStep.publish
  private var readers: [Reader]

  private enum WriterStep { case publish, increment, take, incrementAgain, wakeAll }
  private enum ReaderStep { case read, note, load, look, check, sleep, asleep }

  private struct Reader: Hashable {
    var step = ReaderStep.read
    var position = 0
    var wake = 0
  }

  init(events: Int, readers: Int, incrementsAgain: Bool = true, looksAgain: Bool = true) {
    (self.events, self.incrementsAgain, self.looksAgain) = (events, incrementsAgain, looksAgain)
    self.readers = Array(repeating: Reader(), count: readers)
  }

  /// Whether a reader sleeps although there is an event that it has not read, and nobody will wake it.
  var hasLostAWakeUp: Bool { events == 0 && readers.contains { $0.step == .asleep && $0.position < end } }

  /// What can be next.
  var successors: [WaitingModel] {
    var all: [WaitingModel] = events > 0 ? [afterWriter] : []
    for index in readers.indices where readers[index].step != .asleep { all.append(after(readers[index], at: index)) }
    return all
  }

  private var afterWriter: WaitingModel {
    var next = self
    switch writer {
    case .publish: (next.end, next.writer) = (end + 1, .increment)
    case .increment: (next.wake, next.writer) = (wake + 1, .take)
    case .take:
      next.waiting = false
      next.writer = waiting ? (incrementsAgain ? .incrementAgain : .wakeAll) : .publish
    case .incrementAgain: (next.wake, next.writer) = (wake + 1, .wakeAll)
    case .wakeAll:
      for index in readers.indices where readers[index].step == .asleep { next.readers[index].step = .read }
      next.writer = .publish
    }
    if next.writer == .publish { next.events -= 1 }
    return next
  }

  private func after(_ reader: Reader, at index: Int) -> WaitingModel {
    var (next, reader) = (self, reader)
    switch reader.step {
    case .read: (reader.step, reader.position) = (reader.position == end ? .note : .read, end)
    case .note: (next.waiting, reader.step) = (true, .load)
    case .load: (reader.wake, reader.step) = (wake, looksAgain ? .look : .check)
    case .look: reader.step = waiting ? .check : .read
    case .check: reader.step = reader.position == end ? .sleep : .read
    case .sleep: reader.step = reader.wake == wake ? .asleep : .read
    case .asleep: break
    }
    next.readers[index] = reader
    return next
  }

  /// Whether a wake-up is lost in any order.
  func canLoseAWakeUp() -> Bool {
    var seen: Set<WaitingModel> = [self]
    var open = [self]
    while let model = open.popLast() {
      if model.hasLostAWakeUp { return true }
      for next in model.successors where seen.insert(next).inserted { open.append(next) }
    }
    return false
  }
}

@Suite struct WaitingProtocolTests {
  @Test(arguments: [1, 2]) func noWakeUpIsLostInAnyOrder(readers: Int) {
    #expect(!WaitingModel(events: 3, readers: readers).canLoseAWakeUp())
  }

  /// The control: the model finds the order in which a wake-up comes before the sleep.
  @Test(arguments: [(false, false), (true, false), (false, true)])
  func bothPrecautionsAreNeeded(incrementsAgain: Bool, looksAgain: Bool) {
    let model = WaitingModel(events: 3, readers: 1, incrementsAgain: incrementsAgain, looksAgain: looksAgain)
    #expect(model.canLoseAWakeUp())
  }
}
