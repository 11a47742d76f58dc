import RSocket
import Testing

@Suite struct SavingTests {
  /// Every state that a client's requests can have.
  private var conversation: [UInt8] {
    let text = Payload(metadata: [1, UInt8(ascii: "s")], data: Array("{}".utf8))
    let frames: [Frame] = [
      .setup(Setup(honorsLease: true)),
      .request(StreamID(1), .stream, initialRequest: 5, text, follows: false, isComplete: false),
      .request(StreamID(3), .stream, initialRequest: 5, Payload("a", metadata: [7]), follows: true, isComplete: false),
      .requestN(StreamID(3), 4),
      .request(StreamID(5), .channel, initialRequest: 1, text, follows: false, isComplete: false),
      .payload(StreamID(5), Payload("b"), follows: true, isComplete: false, isNext: true),
      .keepalive(respond: true, position: 0, data: [1, 2, 3]),
      .payload(StreamID(5), Payload("c", metadata: []), follows: false, isComplete: true, isNext: true),
      .requestN(StreamID(1), 7),
      .payload(StreamID(3), Payload("d"), follows: false, isComplete: false, isNext: true),
      .cancel(StreamID(1)),
      .request(StreamID(7), .response, initialRequest: 1, text, follows: false, isComplete: false),
      .request(StreamID(7), .response, initialRequest: 1, text, follows: false, isComplete: false),
    ]
    return frames.flatMap(\.encoded)
  }

  /// Passes one byte at a time, and replies as a server does.
  private func pass(_ bytes: some Sequence<UInt8>, to side: Side) -> [ConnectionMachine.Event] {
    bytes.flatMap { byte in
      let events = side.receive([byte])
      for event in events {
        if case .setup = event { side.machine.sendLease(timeToLive: .seconds(30), count: 5) }
        if case .request(let id, .channel, _, _, _) = event { side.machine.sendRequestN(id, 3) }
      }
      return events
    }
  }

  /// Plays the conversation, with the machine replaced after `cut` bytes by one made of its saved state.
  private func play(cutAt cut: Int) throws -> (events: [ConnectionMachine.Event], output: [UInt8]) {
    let side = Side(ConnectionMachine(acceptingWith: ConnectionLimits()))
    var events = pass(conversation.prefix(cut), to: side)
    if !side.machine.isClosed {
      let saved = side.machine.save()
      #expect(saved.isPossible)
      side.machine = ConnectionMachine(restoring: saved, limits: ConnectionLimits())
      #expect(side.machine.save() == saved)
    }
    events += pass(conversation.dropFirst(cut), to: side)
    return (events, side.machine.takeOutput())
  }

  @Test func aConnectionGoesOnExactlyWhereItStoodWhereverThatWas() throws {
    let side = Side(ConnectionMachine(acceptingWith: ConnectionLimits()))
    let (events, output) = (pass(conversation, to: side), side.take())
    for cut in 0...conversation.count {
      let resumed = try play(cutAt: cut)
      #expect(resumed.events == events && resumed.output == output, "cut at byte \(cut)")
    }
    #expect(events.count == 9 && side.machine.isClosed)
  }

  @Test func whatNoMachineCanHaveBeenIsToldFromWhatOneWas() throws {
    let states = conversation.indices.map { cut in
      let side = Side(ConnectionMachine(acceptingWith: ConnectionLimits()))
      _ = pass(conversation.prefix(cut), to: side)
      return side.machine.save()
    }
    #expect(states.allSatisfy { $0.isPossible })
    let saved = try #require(states.first { $0.requests.count > 1 && $0.requests.last?.assembly != nil })
    let assembling = saved.requests.count - 1
    func isPossible(_ change: (inout ConnectionMachine.Saved) -> Void) -> Bool {
      var changed = saved
      change(&changed)
      return changed.isPossible
    }
    #expect(!isPossible { $0.requests[0].id = StreamID(2) })
    #expect(!isPossible { $0.requests[0].id = StreamID.connection })
    #expect(!isPossible { $0.requests[0].id = $0.requests[1].id })
    #expect(!isPossible { $0.requests[assembling].assembly = nil })
    #expect(!isPossible { $0.requests[assembling].state = 0 })
    #expect(!isPossible { $0.tail = [0, 0, 6, 0, 0, 0, 0, 0, 0] })
    #expect(isPossible { $0.tail = [0, 0, 6, 0, 0, 0, 0, 0] })
  }
}
