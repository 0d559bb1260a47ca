{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnliftedFFITypes #-}

-- | The border to the C code: the layout of a batch, and the functions of @cbits@.
module System.IO.BlockIO.Layout (
    -- * Batches
    newBatch,
    storeOp,
    OpKind,
    maxOps,
    readKind,
    writeKind,

    -- * Lanes
    Lane,
    Engine,
    Failure (..),
    openLane,
    submitBatch,
    cancelBatch,
    refuseBatches,
    closeEngine,
    finalizeLane,
    driverWords,
  ) where

import Control.Monad (void)
import Control.Monad.Primitive (RealWorld, touch)
import Data.Int (Int32, Int64)
import Data.Primitive.ByteArray
import Data.Word (Word32, Word64, Word8)
import Foreign.C.Error (Errno (..))
import Foreign.C.String (CString, peekCString)
import Foreign.C.Types (CInt (..), CSize (..))
import Foreign.Marshal.Alloc (alloca, allocaBytes)
import Foreign.Ptr (FunPtr, Ptr, WordPtr (..), castPtr, plusPtr, ptrToWordPtr)
import Foreign.StablePtr (StablePtr)
import Foreign.Storable (peek, poke)
import GHC.Conc (PrimMVar)
import System.Posix.Types (ByteCount, Fd (..), FileOffset)

-- @sizeof(struct batch)@ and @sizeof(struct cringle_op)@. The C code asserts them and the offsets.
headerBytes, opBytes :: Int
headerBytes = 48
opBytes = 64

newtype OpKind = OpKind Word32

readKind, writeKind :: OpKind
readKind = OpKind 1
writeKind = OpKind 2

-- | @CRINGLE_MAX_OPS@: the most operations of a batch.
maxOps :: Int
maxOps = 1048576

-- | The size of a batch: it has room for the words of a failure.
batchBytes :: Int -> Int
batchBytes count = headerBytes + max 4 count * opBytes

-- | Returns a pinned array for a batch of this number of operations.
newBatch :: Int -> IO (MutableByteArray RealWorld)
newBatch count = do
  batch <- newPinnedByteArray (batchBytes count)
  fillByteArray batch 0 (batchBytes count) 0
  pure batch

-- | Stores the operation with an index.
storeOp ::
  MutableByteArray RealWorld -> Int -> OpKind -> Fd -> FileOffset -> Ptr Word8 -> ByteCount -> IO ()
storeOp batch index (OpKind kind) (Fd fd) offset buffer count = do
  let at = headerBytes + index * opBytes
      WordPtr address = ptrToWordPtr buffer
  writeByteArray batch (at `quot` 4) kind
  writeByteArray batch (at `quot` 4 + 1) (fromIntegral fd :: Int32)
  writeByteArray batch (at `quot` 8 + 1) (fromIntegral address :: Word64)
  writeByteArray batch (at `quot` 8 + 2) (fromIntegral count :: Word64)
  writeByteArray batch (at `quot` 8 + 3) (fromIntegral offset :: Word64)
{-# INLINE storeOp #-}

-- | The engine of one capability: the C code's memory.
data Lane

-- | The number of a lane's engine. It is never used again, while the memory of a lane that is
-- finalized is.
newtype Engine = Engine Word64

foreign import ccall safe "blockio_open"
  c_open :: Word32 -> Word32 -> Ptr (Ptr Lane) -> Ptr Word64 -> CString -> CSize -> IO CInt

foreign import ccall unsafe "blockio_submit"
  c_submit ::
    Ptr Lane ->
    Word64 ->
    MutableByteArray# RealWorld ->
    Int64 ->
    CSize ->
    MutableByteArray# RealWorld ->
    Int64 ->
    StablePtr PrimMVar ->
    IO CInt

foreign import ccall unsafe "blockio_cancel"
  c_cancel :: MutableByteArray# RealWorld -> IO ()

foreign import ccall unsafe "blockio_refuse"
  c_refuse :: Ptr Lane -> Word64 -> IO ()

foreign import ccall safe "cringle_close"
  c_close :: Word64 -> IO CInt

foreign import ccall "&blockio_finalize"
  finalizeLane :: FunPtr (Ptr Lane -> IO ())

foreign import ccall safe "blockio_driver"
  c_driver :: Word64 -> CString -> CSize -> IO CInt

-- | A failure: its error number, and what failed, why, and the remedy.
data Failure = Failure Errno String

-- | Starts an engine with these limits of a batch and of the operations in flight.
openLane :: Int -> Int -> IO (Either Failure (Ptr Lane, Engine))
openLane batchLimit inFlightLimit = alloca $ \lane -> alloca $ \engine -> withText $ \text size -> do
  status <- c_open (fromIntegral batchLimit) (fromIntegral inFlightLimit) lane engine text size
  if status < 0
    then Left <$> failureOf status text
    else Right <$> ((,) <$> peek lane <*> (Engine <$> peek engine))

-- | Starts the batch, and does not wait. Its completion fills the MVar, unless the call fails. Both
-- arrays are pinned, and stay reachable until the completion.
submitBatch ::
  Ptr Lane ->
  Engine ->
  MutableByteArray RealWorld ->
  Int ->
  MutableByteArray RealWorld ->
  Int ->
  StablePtr PrimMVar ->
  IO (Maybe Failure)
submitBatch lane (Engine engine) array@(MutableByteArray batch) count (MutableByteArray results) capability mvar = do
  let size = fromIntegral (batchBytes count - headerBytes)
  status <- c_submit lane engine batch (fromIntegral count) size results (fromIntegral capability) mvar
  if status < 0
    then do
      failure <- failureOf status (castPtr (mutableByteArrayContents array `plusPtr` headerBytes))
      touch array
      pure (Just failure)
    else pure Nothing

-- | Asks for an early end of a started batch. Its completion still arrives.
cancelBatch :: MutableByteArray RealWorld -> IO ()
cancelBatch (MutableByteArray batch) = c_cancel batch

-- | Refuses further batches.
refuseBatches :: Ptr Lane -> Engine -> IO ()
refuseBatches lane (Engine engine) = c_refuse lane engine

-- | Returns when the batches under way have ended, and ends the engine. It does nothing for an engine
-- that is closed.
closeEngine :: Engine -> IO ()
closeEngine (Engine engine) = void (c_close engine)

-- | Returns how an engine performs operations, and why.
driverWords :: Engine -> IO (Either Failure String)
driverWords (Engine engine) = withText $ \text size -> do
  status <- c_driver engine text size
  if status < 0 then Left <$> failureOf status text else Right <$> peekCString text

failureOf :: CInt -> CString -> IO Failure
failureOf status text = Failure (Errno (negate status)) <$> peekCString text

withText :: (CString -> CSize -> IO a) -> IO a
withText call = allocaBytes size $ \text -> do
  poke text 0
  call text (fromIntegral size)
  where
    size = 1024
