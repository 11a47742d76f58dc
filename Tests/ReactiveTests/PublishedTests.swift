import Reactive
import Testing

@Suite struct PublishedTests {
  private class Contact: ObservableObject {
    @Published var name: String
    @Published var age = 20

    init(name: String) { self.name = name }
  }

  private final class Friend: Contact {
    @Published var since = 2000
  }

  @Test func publishesTheInitialValueAndEachChangeBeforeItHappens() {
    nonisolated(unsafe) let contact = Contact(name: "A")
    nonisolated(unsafe) var seen: [String] = []
    let sink = contact.$name.sink { seen.append("\($0) after \(contact.name)") }
    contact.name = "B"
    contact.name.append("C")
    sink.cancel()
    contact.name = "D"
    #expect(seen == ["A after A", "B after A", "BC after B"])
    #expect(contact.name == "D")
  }

  @Test func objectWillChangePrecedesEachChange() {
    nonisolated(unsafe) let friend = Friend(name: "A")
    nonisolated(unsafe) var seen: [String] = []
    let sink = friend.objectWillChange.sink { seen.append("\(friend.name) \(friend.age) \(friend.since)") }
    friend.name = "B"
    friend.age += 1
    friend.since = 2001
    sink.cancel()
    friend.age += 1
    #expect(seen == ["A 20 2000", "B 20 2000", "B 21 2000"])
  }

  @Test func objectsHaveSeparatePublishers() {
    let contacts = (0..<200).map { _ in Contact(name: "A") }
    nonisolated(unsafe) var changed: [Int] = []
    let sinks = contacts.enumerated().map { index, contact in
      contact.objectWillChange.sink { changed.append(index) }
    }
    contacts[150].age = 1
    contacts[3].age = 1
    #expect(changed == [150, 3])
    #expect(contacts[0].objectWillChange === contacts[0].objectWillChange)
    for sink in sinks { sink.cancel() }
  }

  @Test func objectWithoutPublishedPropertiesSendsItself() {
    final class Counter: ObservableObject {
      var count = 0 { willSet { objectWillChange.send() } }
    }
    let counter = Counter()
    nonisolated(unsafe) var count = 0
    let sink = counter.objectWillChange.sink { count += 1 }
    counter.count = 5
    sink.cancel()
    #expect(count == 1)
  }

  @Test func customObjectWillChangeIsNotUsedByPublishedProperties() {
    final class Model: ObservableObject {
      let objectWillChange = PassthroughSubject<Void, Never>()
      @Published var value = 1
    }
    let model = Model()
    nonisolated(unsafe) var count = 0
    let sink = model.objectWillChange.sink { count += 1 }
    model.value = 2
    model.objectWillChange.send()
    sink.cancel()
    #expect(count == 1)
  }

  @Test func assigningToAPublishedPropertyPublishesTheChange() {
    nonisolated(unsafe) let contact = Contact(name: "A")
    let subject = PassthroughSubject<Int, Never>()
    nonisolated(unsafe) var changes = 0
    nonisolated(unsafe) var ages: [Int] = []
    let sinks = [
      contact.objectWillChange.sink { changes += 1 }, contact.$age.sink { ages.append($0 - contact.age) },
    ]
    subject.assign(to: &contact.$age)
    subject.send(30)
    subject.send(32)
    #expect(contact.age == 32 && changes == 2 && ages == [0, 10, 2])
    for sink in sinks { sink.cancel() }
  }

  @Test func assignmentInsideASubscriptionIsPublished() {
    nonisolated(unsafe) let contact = Contact(name: "A")
    nonisolated(unsafe) var names: [String] = []
    let sink = contact.$name.sink { _ in names.append(contact.name) }
    ["B", "C"].publisher.assign(to: &contact.$name)
    sink.cancel()
    #expect(names == ["A", "A", "B"] && contact.name == "C")
  }

  @Test func assignmentEndsWithTheObject() {
    let probe = Probe<Int, Never>()
    weak var released: Contact?
    do {
      let contact = Contact(name: "A")
      probe.assign(to: &contact.$age)
      probe.send(5)
      #expect(contact.age == 5)
      released = contact
    }
    #expect(released == nil && probe.state.cancels == 1)
  }

  @Test func settingInsideASinkKeepsTheOrder() {  // row 17
    nonisolated(unsafe) let contact = Contact(name: "A")
    nonisolated(unsafe) var seen: [Int] = []
    let sink = contact.$age.sink { age in
      seen.append(age)
      if age == 21 { contact.age = 22 }
    }
    contact.age = 21
    sink.cancel()
    #expect(seen == [20, 21, 22])
  }
}
