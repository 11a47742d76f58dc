import RSocket
import StreamRuntime

/// A connection before its first byte. That byte selects the protocol, whose connection takes the place of this one.
final class NewConnection: Connection {
  /// When its time for the handshake began, in nanoseconds of the monotonic clock.
  private var beganToWait: UInt64 = 0
  private var answer: [UInt8] = []

  override var answerByteCount: Int { answer.count }

  override func takeAnswers() -> [UInt8] {
    defer { answer = [] }
    return answer
  }

  override func start(within time: Duration?) -> Bool {
    beganToWait = worker.loop.now
    return super.start(within: time)
  }

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    let isHTTP = HTTPConnection.speaks(unsafe bytes[0])
    let waited = Duration.nanoseconds(Int64(worker.loop.now - min(worker.loop.now, beganToWait)))
    let left = max(.zero, worker.limits.handshakeTimeout - waited)
    let successor = worker.replace(self, within: left) {
      isHTTP
        ? HTTPConnection($0, identity, share, worker: worker) : RSocketConnection($0, identity, share, worker: worker)
    }
    unsafe successor?.take(Array(bytes))
    return bytes.count
  }

  /// A browser opens connections that it may not use.
  override func timeIsOver() {
    worker.trace(identity, "sent nothing within the handshake timeout")
    close()
  }

  /// The client has selected no protocol: it gets the reason as an RSocket error.
  override func stop(_ failure: RequestFailure) {
    guard phase == .open else { return }
    var machine = ConnectionMachine()
    machine.close(.connectionClose, failure.sentence)
    answer = machine.takeOutput()
    finishClosing()
  }

  override func save() -> SavedConnection? {
    guard phase == .open else { return nil }
    let (input, unsent) = savedBytes
    let saved = SavedConnection(
      descriptor: socket.raw, number: identity.number, silence: silence, input: input, unsent: unsent)
    leaveSocket()
    return saved
  }

  override func restore(_ saved: SavedConnection) {
    restore(silence: saved.silence, input: saved.input, unsent: saved.unsent)
  }
}
