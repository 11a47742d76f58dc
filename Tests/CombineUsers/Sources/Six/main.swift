// A package in Swift 6 mode: actors, values awaited, state that is published on the main actor.
#if canImport(Combine)
  import Combine
#else
  import Reactive
#endif

struct Reading: Sendable, Equatable {
  var celsius: Double
}

enum SensorFailure: Error { case broken }

@MainActor
final class Weather: ObservableObject {
  @Published var celsius = 0.0
  @Published private(set) var isWarm = false
  private var subscriptions: Set<AnyCancellable> = []

  init(_ readings: some Publisher<Reading, Never>) {
    readings.map(\.celsius).assign(to: &$celsius)
    $celsius.map { $0 > 20 }.removeDuplicates().sink { [weak self] isWarm in
      MainActor.assumeIsolated { self?.isWarm = isWarm }
    }.store(in: &subscriptions)
  }
}

actor Station {
  nonisolated let readings = PassthroughSubject<Reading, Never>()
  private var count = 0

  func measure(_ celsius: Double) {
    count += 1
    readings.send(Reading(celsius: celsius))
  }

  var measured: Int { count }
}

let station = Station()
let weather = Weather(station.readings)
var changes = 0
let observation = weather.objectWillChange.sink { MainActor.assumeIsolated { changes += 1 } }
for celsius in [18.0, 19, 21] { await station.measure(celsius) }
precondition(weather.celsius == 21 && weather.isWarm)
precondition(changes == 4, "\(changes) changes")
let measured = await station.measured
precondition(measured == 3)
observation.cancel()

var sum = 0
for await number in [1, 2, 3].publisher.map({ $0 * $0 }).values { sum += number }
precondition(sum == 14)

let broken = Fail<Reading, SensorFailure>(error: .broken)
do {
  for try await reading in broken.values { preconditionFailure("\(reading)") }
  preconditionFailure("no failure")
} catch {
  precondition(error == .broken)
}

func newest<P: Publisher>(of publisher: P) -> AnyPublisher<P.Output, Never> where P.Failure == Never {
  publisher.buffer(size: 1, prefetch: .byRequest, whenFull: .dropOldest).eraseToAnyPublisher()
}
let latest = await newest(of: (1...10).publisher).values.first { _ in true }
precondition(latest != nil)

let task = Task { @MainActor in
  var seen: [Double] = []
  for await celsius in weather.$celsius.values.prefix(2) {
    seen.append(celsius)
    weather.celsius = 30
  }
  return seen
}
let seen = await task.value
precondition(seen == [21, 30], "\(seen)")
print("Swift 6 mode: as Combine has it")
