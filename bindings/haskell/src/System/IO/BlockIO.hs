{-# LANGUAGE BangPatterns #-}
{-# LANGUAGE NamedFieldPuns #-}

-- | Batches of reads and writes on Linux, performed by Cringle's threads on their rings (@io_uring@).
-- A batch blocks only the green thread that submits it.
--
-- The module has the names of the package @blockio-uring@, so that a program changes only its
-- @build-depends@. The README lists the differences.
--
-- > import qualified Data.Primitive.ByteArray as P
-- > import qualified Data.Vector as V
-- > import System.IO.BlockIO
-- >
-- > firstPages :: Fd -> IO (V.Vector IOResult)
-- > firstPages fd = withIOCtx defaultIOCtxParams $ \io -> do
-- >   pages <- P.newPinnedByteArray (64 * 4096)
-- >   V.convert <$> submitIO io (V.generate 64 $ \i ->
-- >     IOOpRead fd (fromIntegral i * 4096) pages (i * 4096) 4096)
module System.IO.BlockIO (
    -- * Contexts
    IOCtx,
    IOCtxParams (..),
    defaultIOCtxParams,
    withIOCtx,
    initIOCtx,
    closeIOCtx,
    ioctxDriver,

    -- * Batches
    submitIO,
    IOOp (IOOpRead, IOOpWrite),
    IOResult (IOResult, IOError),
    ByteCount,
    Errno (..),
  ) where

import Control.Concurrent
  ( getNumCapabilities
  , myThreadId
  , rtsSupportsBoundThreads
  , threadCapability
  )
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray
import qualified Data.Vector as V
import qualified Data.Vector.Unboxed as U
import Data.Word (Word8)
import Foreign.C.Error (Errno (..), eBADF, errnoToIOError)
import Foreign.ForeignPtr (ForeignPtr, newForeignPtr, withForeignPtr)
import Foreign.Ptr (Ptr, plusPtr)
import Foreign.StablePtr (freeStablePtr, newStablePtr)
import GHC.Conc (newStablePtrPrimMVar)
import GHC.IO.Exception (IOErrorType (InvalidArgument, ResourceVanished))
import System.IO.BlockIO.Layout
import System.IO.BlockIO.Result
import System.IO.Error (illegalOperationErrorType, ioeSetErrorString, mkIOError)
import System.Posix.Types (ByteCount, Fd, FileOffset)

-- | A handle by which threads submit batches.
--
-- It has an engine for each capability of the program, with a thread and a ring of its own. A batch
-- is performed by the engine of the capability on which its thread runs.
newtype IOCtx = IOCtx (V.Vector (ForeignPtr Lane, Engine))

-- | The parameters of 'initIOCtx'. The limits apply to each capability.
data IOCtxParams = IOCtxParams
  { -- | The number of operations that one system call submits: 0 < limit < 2¹⁵. A larger batch is
    -- split, and its parts are pipelined.
    ioctxBatchSizeLimit :: !Int,
    -- | The number of operations in the kernel at once: at least the batch size limit, and less than
    -- 2¹⁶. Beyond it, batches wait.
    ioctxConcurrencyLimit :: !Int,
    -- | Accepted for programs that set it. Cringle always asks the kernel not to count an idle
    -- ring as I\/O wait.
    ioctxIOWaitMetrics :: !Bool
  }
  deriving (Show)

-- | A batch size limit of 64, and a concurrency limit of 192.
defaultIOCtxParams :: IOCtxParams
defaultIOCtxParams =
  IOCtxParams {ioctxBatchSizeLimit = 64, ioctxConcurrencyLimit = 64 * 3, ioctxIOWaitMetrics = True}

-- | Runs an action with a context, which is closed afterwards.
withIOCtx :: IOCtxParams -> (IOCtx -> IO a) -> IO a
withIOCtx params = bracket (initIOCtx params) closeIOCtx

-- | Starts the engines.
--
-- Throws an 'IOException': an illegal operation if the program is not linked with @-threaded@, an
-- invalid argument if a limit is out of range, and otherwise what Cringle reports, with the remedy.
initIOCtx :: IOCtxParams -> IO IOCtx
initIOCtx params@IOCtxParams {ioctxBatchSizeLimit, ioctxConcurrencyLimit} = do
  unless rtsSupportsBoundThreads $ throwIO (mkIOError illegalOperationErrorType notThreaded Nothing Nothing)
  forM_ (invalid params) $ \why ->
    throwIO (mkIOError InvalidArgument ("IOCtxParams are invalid because " ++ why) Nothing Nothing)
  count <- getNumCapabilities
  mask_ (go count [])
  where
    notThreaded = "System.IO.BlockIO needs the threaded run-time system; link with -threaded"
    go 0 lanes = pure (IOCtx (V.fromList lanes))
    go n lanes = do
      lane <- open `onException` mapM_ (closeEngine . snd) lanes
      go (n - 1 :: Int) (lane : lanes)
    open =
      openLane ioctxBatchSizeLimit ioctxConcurrencyLimit
        >>= either (throwFailure "initIOCtx") manage
    manage (lane, engine) = do
      managed <- newForeignPtr finalizeLane lane
      pure (managed, engine)

invalid :: IOCtxParams -> Maybe String
invalid IOCtxParams {ioctxBatchSizeLimit = batch, ioctxConcurrencyLimit = concurrency}
  | batch <= 0 = Just "the batch size limit is non-positive"
  | batch >= 2 ^ (15 :: Int) = Just "the batch size limit is greater than or equal to 2^15"
  | concurrency <= 0 = Just "the concurrency limit is non-positive"
  | concurrency >= 2 ^ (16 :: Int) = Just "the concurrency limit is greater than or equal to 2^16"
  | batch > concurrency = Just "the batch size limit exceeds the concurrency limit"
  | otherwise = Nothing

-- | Refuses further batches, waits for those under way, and ends the engines. A second call does
-- nothing.
closeIOCtx :: IOCtx -> IO ()
closeIOCtx (IOCtx lanes) = mask_ $ do
  V.forM_ lanes $ \(lane, engine) -> withForeignPtr lane (`refuseBatches` engine)
  V.forM_ lanes $ \(lane, engine) -> withForeignPtr lane (const (closeEngine engine))

-- | Returns how the operations are performed, and the reason: a line for a log.
--
-- Throws an 'IOException': a vanished resource if the context is closed.
ioctxDriver :: IOCtx -> IO String
ioctxDriver (IOCtx lanes) = driverWords (snd (V.head lanes)) >>= either (throwFailure "ioctxDriver") pure

-- | A read or write: the file, the offset in it, the buffer, the offset in the buffer, and the number
-- of bytes. The buffer must be pinned ('newPinnedByteArray').
data IOOp s
  = IOOpRead !Fd !FileOffset !(MutableByteArray s) !Int !ByteCount
  | IOOpWrite !Fd !FileOffset !(MutableByteArray s) !Int !ByteCount

-- | Performs the operations and returns their results, in the same order. Only the calling green
-- thread waits.
--
-- The operations run at the same time, in any order, also with those of other batches. A failed
-- operation has an 'IOError' as its result; a count can be smaller than requested. More than 2²⁰
-- operations are performed in parts, one after the other.
--
-- An asynchronous exception cancels the operations. It is delivered when the kernel has finished with
-- the buffers, which takes as long as the device needs for what it has begun.
--
-- Throws an 'IOException': a vanished resource if the context is closed; an invalid argument if a
-- buffer is not pinned, or does not contain the range of its operation. Then no operation is
-- performed.
submitIO :: IOCtx -> V.Vector (IOOp RealWorld) -> IO (U.Vector IOResult)
submitIO (IOCtx lanes) !ops
  | V.null ops = pure U.empty
  | V.length ops > maxOps = do
      V.mapM_ addressOf ops
      U.concat <$> mapM (submitIO (IOCtx lanes)) (parts ops)
  | otherwise = do
      batch <- newBatch (V.length ops)
      V.imapM_ (store batch) ops
      results <- newPinnedByteArray (8 * V.length ops)
      (capability, _) <- threadCapability =<< myThreadId
      let (managed, engine) = lanes V.! (capability `rem` V.length lanes)
      withForeignPtr managed $ \lane -> perform lane engine capability batch ops results
      resultsFrom 0 (V.length ops) <$> unsafeFreezeByteArray results
  where
    parts rest
      | V.null rest = []
      | otherwise = V.take maxOps rest : parts (V.drop maxOps rest)

store :: MutableByteArray RealWorld -> Int -> IOOp RealWorld -> IO ()
store batch index op = do
  address <- addressOf op
  case op of
    IOOpRead fd offset _ _ count -> storeOp batch index readKind fd offset address count
    IOOpWrite fd offset _ _ count -> storeOp batch index writeKind fd offset address count
{-# INLINE store #-}

-- | Returns the address of an operation's range of its buffer.
addressOf :: IOOp RealWorld -> IO (Ptr Word8)
addressOf (IOOpRead _ _ buffer from count) = range buffer from count
addressOf (IOOpWrite _ _ buffer from count) = range buffer from count
{-# INLINE addressOf #-}

-- | Returns the address of a range of a buffer.
range :: MutableByteArray RealWorld -> Int -> ByteCount -> IO (Ptr Word8)
range buffer from count = do
  size <- getSizeofMutableByteArray buffer
  unless (isMutableByteArrayPinned buffer) $ refuse "MutableByteArray is unpinned"
  when (from < 0 || from > size || count > fromIntegral (size - from)) $
    refuse ("the buffer has " ++ show size ++ " bytes, and the operation is on " ++ show count
              ++ " bytes from " ++ show from)
  pure (mutableByteArrayContents buffer `plusPtr` from)
  where
    refuse why = throwIO (mkIOError InvalidArgument ("submitIO: " ++ why) Nothing Nothing)
{-# INLINE range #-}

-- | Starts a batch and waits until it is complete. After the start it does not return earlier: the
-- kernel writes to the buffers and to the results.
--
-- At the end of the program the run-time system deletes all threads, collects, and runs the
-- finalizers, which wait for the kernel. So the stack of the thread does not keep the memory that
-- long: a stable pointer does.
perform ::
  Ptr Lane ->
  Engine ->
  Int ->
  MutableByteArray RealWorld ->
  V.Vector (IOOp RealWorld) ->
  MutableByteArray RealWorld ->
  IO ()
perform lane engine capability batch ops results = mask_ $ do
  done <- newEmptyMVar :: IO (MVar ())
  stable <- newStablePtrPrimMVar done
  memory <- newStablePtr (ops, batch, results)
  failed <- submitBatch lane engine batch (V.length ops) results capability stable
  forM_ failed $ \failure -> do
    freeStablePtr stable
    freeStablePtr memory
    throwFailure "submitIO" failure
  takeMVar done `catch` \exception -> do
    cancelBatch batch
    uninterruptibleMask_ (takeMVar done)
    freeStablePtr memory
    throwIO (exception :: SomeException)
  freeStablePtr memory

throwFailure :: String -> Failure -> IO a
throwFailure call (Failure errno text)
  | errno == eBADF = throwIO (mkIOError ResourceVanished "IOCtx closed" Nothing Nothing)
  | otherwise = throwIO (ioeSetErrorString (errnoToIOError call errno Nothing Nothing) text)
